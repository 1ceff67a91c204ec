// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Named tests: each prints one `@test` line, the whole ends with `@done`.

pub use turnstile_guests_common::test::{Outcome, Stop, Test, Text};

use crate::{cpu, exception, irq, timer};

/// Puts timer, interrupts and handlers back to rest, so that tests do not depend on each other.
pub fn rest() {
    cpu::mask();
    irq::set_handler(None);
    exception::init();
    timer::disarm();
    irq::init();
    // What came in meanwhile goes.
    cpu::take_interrupts();
    irq::reset_counts();
}

/// Runs the tests of all groups that the option `test=` selects (a name, or the part before a dash; several
/// by commas), then prints `@done`.
pub fn run(groups: &[&[Test]]) {
    turnstile_guests_common::test::run(groups, rest);
}
