// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Named tests: each prints one `@test` line, the whole ends with `@done`.

pub use turnstile_guests_common::test::{Outcome, Stop, Test, Text};

use crate::platform::platform;
use crate::timer::Timer;
use crate::{cpu, gic, irq};

/// Puts timers, interrupts and handlers back to rest, so that tests do not depend on each other.
pub fn rest() {
    cpu::mask_irq();
    cpu::mask_fiq();
    irq::set_handler(None);
    for timer in [Timer::Virtual, Timer::Physical] {
        timer.set_control(0);
    }
    if platform().gicd.is_some() {
        gic::init();
    }
    irq::reset_counts();
}

/// Runs the tests of all groups that the option `test=` selects (a name, or the part before a dash; several
/// by commas), then prints `@done`.
pub fn run(groups: &[&[Test]]) {
    turnstile_guests_common::test::run(groups, rest);
}
