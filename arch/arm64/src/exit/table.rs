// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The handlers that `vectors.S` calls: light ones, by exception class and direction, and of interrupts; and the wide ones behind
//! them. Of each GIC where that matters; of interrupts, with statistics and without.

use turnstile_exitstat::Reason;

use super::light::{Code, Read, done, resident};
use super::trapped::Indexed;
use super::{hvc, irq, mmio, sysreg};
use crate::irq::{Gicv2, Gicv3, Gicv3Legacy};
use crate::vcpu::frame::Frame;

/// Defines handlers of the C ABI under names that `vectors.S` knows.
macro_rules! handlers {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*) -> $result:ty = $body:expr;)*) => {$(
        $(#[$doc])*
        #[cfg_attr(target_os = "none", unsafe(no_mangle), unsafe(link_section = ".text.hot"))]
        pub extern "C" fn $name($($argument: $type),*) -> $result {
            $body
        }
    )*};
}

handlers! {
    /// HVC.
    turnstile_light_hvc(frame: &mut Frame) -> u32 = hvc::light(frame);
    /// What is left of it.
    turnstile_wide_hvc(frame: &mut Frame, _code: u32) -> u32 = hvc::wide(frame);

    /// Reads of trapped system registers: takes the syndrome.
    turnstile_light_sysreg_read(frame: &mut Frame, esr: u64) -> Read = sysreg::light_read::<Indexed>(frame, esr);
    /// Writes of trapped system registers: takes the syndrome and the value.
    turnstile_light_sysreg_write(frame: &mut Frame, esr: u64, value: u64) -> u32 =
        sysreg::light_write::<Gicv3, Indexed>(frame, esr, value);
    /// The same for guests with a GICv2.
    turnstile_light_sysreg_write_gicv2(frame: &mut Frame, esr: u64, value: u64) -> u32 =
        sysreg::light_write::<Gicv2, Indexed>(frame, esr, value);
    /// What is left of writes of trapped system registers.
    turnstile_wide_sysreg_write(frame: &mut Frame, code: u32) -> u32 =
        sysreg::wide_write::<Gicv3, Indexed>(frame, code);

    /// Data aborts of loads: takes the syndrome.
    turnstile_light_load(frame: &mut Frame, esr: u64) -> Read = mmio::light_read(frame, esr);
    /// What is left of them.
    turnstile_wide_load(frame: &mut Frame, code: u32) -> u32 = mmio::wide_read(frame, code);
    /// Data aborts of stores on a GICv2: takes the syndrome and the value.
    turnstile_light_store_gicv2(frame: &mut Frame, esr: u64, value: u64) -> u32 =
        mmio::light_write::<Gicv2>(frame, esr, value as u32);
    /// The same for GICv2 guests on a GICv3.
    turnstile_light_store_legacy(frame: &mut Frame, esr: u64, value: u64) -> u32 =
        mmio::light_write::<Gicv3Legacy>(frame, esr, value as u32);
    /// What is left of them on a GICv2.
    turnstile_wide_store_gicv2(frame: &mut Frame, code: u32) -> u32 = mmio::wide_write::<Gicv2>(frame, code);
    /// The same for GICv2 guests on a GICv3.
    turnstile_wide_store_legacy(frame: &mut Frame, code: u32) -> u32 = mmio::wide_write::<Gicv3Legacy>(frame, code);

    /// Physical interrupts.
    turnstile_light_irq(frame: &mut Frame) -> u32 = irq::light::<Gicv3, false>(frame);
    /// The same on a GICv2.
    turnstile_light_irq_gicv2(frame: &mut Frame) -> u32 = irq::light::<Gicv2, false>(frame);
    /// The same for GICv2 guests on a GICv3.
    turnstile_light_irq_legacy(frame: &mut Frame) -> u32 = irq::light::<Gicv3Legacy, false>(frame);
    /// Physical interrupts where statistics are kept.
    turnstile_light_irq_timed(frame: &mut Frame) -> u32 = irq::light::<Gicv3, true>(frame);
    /// The same on a GICv2.
    turnstile_light_irq_gicv2_timed(frame: &mut Frame) -> u32 = irq::light::<Gicv2, true>(frame);
    /// The same for GICv2 guests on a GICv3.
    turnstile_light_irq_legacy_timed(frame: &mut Frame) -> u32 = irq::light::<Gicv3Legacy, true>(frame);
    /// What is left of physical interrupts.
    turnstile_wide_irq(frame: &mut Frame, code: u32) -> u32 = irq::wide::<Gicv3>(frame, code);
    /// The same on a GICv2.
    turnstile_wide_irq_gicv2(frame: &mut Frame, code: u32) -> u32 = irq::wide::<Gicv2>(frame, code);
    /// The same for GICv2 guests on a GICv3.
    turnstile_wide_irq_legacy(frame: &mut Frame, code: u32) -> u32 = irq::wide::<Gicv3Legacy>(frame, code);

    /// FIQ: nothing is configured as Group 0 or secure, so none is expected; one is ignored.
    turnstile_light_fiq(frame: &mut Frame) -> u32 = done(resident(frame));
    /// The same where statistics are kept.
    turnstile_light_fiq_timed(frame: &mut Frame) -> u32 = {
        frame.timing.note(Reason::OtherInterrupt);
        done(resident(frame))
    };
    /// SError while the guest ran: never light.
    turnstile_light_serror(_frame: &mut Frame) -> u32 = Code::SERROR;
    /// The same where statistics are kept.
    turnstile_light_serror_timed(frame: &mut Frame) -> u32 = {
        frame.timing.note(Reason::MachineError);
        Code::SERROR
    };
}
