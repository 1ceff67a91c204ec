// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Named tests: each prints one `@test` line, the whole ends with `@done`.

pub use turnstile_guests_common::test::{Outcome, Stop, Test, Text};

use crate::{apic, cpu, exception, io_apic, irq, pic, pit, pv_eoi, timer};

/// Puts timers, interrupt controllers and handlers back to rest, so that tests do not depend on each other. The APIC
/// is used as an x2APIC, if it is one.
pub fn rest() {
    cpu::mask();
    pv_eoi::disable();
    irq::set_handler(None);
    irq::set_ending(irq::Ending::Eoi);
    exception::init();
    pit::stop();
    pic::init();
    apic::init();
    timer::disarm();
    io_apic::mask_all();
    // What came in meanwhile goes.
    cpu::take_interrupts();
    irq::reset_counts();
}

/// Runs the tests of all groups that the option `test=` selects (a name, or the part before a dash; several
/// by commas), then prints `@done`.
pub fn run(groups: &[&[Test]]) {
    turnstile_guests_common::test::run(groups, rest);
}
