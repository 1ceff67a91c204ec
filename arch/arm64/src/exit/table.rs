// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The light handlers that `vectors.S` calls: by exception class, and of interrupts; of each GIC, with statistics and without.

use turnstile_exitstat::Reason;

use super::light::{Code, Handler, done, resident};
use super::{hvc, irq, mmio, sysreg};
use crate::cpu::class;
#[cfg(any(target_os = "none", test))]
use crate::irq::Gic;
use crate::irq::{Gicv2, Gicv3, Gicv3Legacy};
use crate::vcpu::frame::Frame;

/// The light handlers by exception class: `vectors.S` calls them.
#[cfg_attr(target_os = "none", unsafe(no_mangle))]
pub static LIGHT_HANDLERS: [Handler; 64] =
    handlers(sysreg::turnstile_light_sysreg, mmio::turnstile_light_data_abort);

/// [`LIGHT_HANDLERS`] of the vectors of a GICv2.
#[cfg_attr(target_os = "none", unsafe(no_mangle))]
pub static LIGHT_HANDLERS_GICV2: [Handler; 64] =
    handlers(sysreg::turnstile_light_sysreg_gicv2, mmio::turnstile_light_data_abort_gicv2);

/// [`LIGHT_HANDLERS`] of the vectors of a GICv2 on a GICv3.
#[cfg_attr(target_os = "none", unsafe(no_mangle))]
pub static LIGHT_HANDLERS_LEGACY: [Handler; 64] =
    handlers(sysreg::turnstile_light_sysreg_gicv2, mmio::turnstile_light_data_abort_legacy);

/// Makes a table: the handlers named here know the interrupt controller.
const fn handlers(sysreg: Handler, data_abort: Handler) -> [Handler; 64] {
    let mut handlers: [Handler; 64] = [turnstile_light_other; 64];
    handlers[class::HVC64 as usize] = hvc::turnstile_light_hvc;
    handlers[class::SYSTEM_REGISTER as usize] = sysreg;
    handlers[class::DATA_ABORT as usize] = data_abort;
    handlers
}

/// Light exits about the value of one of x19–x30, which have been stored.
#[cfg(any(target_os = "none", test))]
#[cfg_attr(target_os = "none", unsafe(no_mangle), unsafe(link_section = ".text.hot"))]
pub(super) extern "C" fn turnstile_light_preserved(frame: &mut Frame, esr: u64) -> u32 {
    sysreg::light_preserved::<Gicv3>(frame, esr)
}

/// [`turnstile_light_preserved`] of the vectors of a GICv2.
#[cfg(any(target_os = "none", test))]
#[cfg_attr(target_os = "none", unsafe(no_mangle), unsafe(link_section = ".text.hot"))]
pub(super) extern "C" fn turnstile_light_preserved_gicv2(frame: &mut Frame, esr: u64) -> u32 {
    light_preserved_with_sgir::<Gicv2>(frame, esr)
}

/// [`turnstile_light_preserved`] of the vectors of a GICv2 on a GICv3.
#[cfg(any(target_os = "none", test))]
#[cfg_attr(target_os = "none", unsafe(no_mangle), unsafe(link_section = ".text.hot"))]
pub(super) extern "C" fn turnstile_light_preserved_legacy(frame: &mut Frame, esr: u64) -> u32 {
    light_preserved_with_sgir::<Gicv3Legacy>(frame, esr)
}

/// Where SGIs are stores to `GICD_SGIR`.
#[cfg(any(target_os = "none", test))]
#[inline(always)] // Its two callers are what it is for.
fn light_preserved_with_sgir<G: Gic>(frame: &mut Frame, esr: u64) -> u32 {
    match class::of(esr) {
        class::DATA_ABORT => mmio::light_preserved_sgir::<G>(frame, esr as u32),
        _ => sysreg::light_preserved::<G>(frame, esr),
    }
}

/// All other classes are left to the full tier.
#[cfg_attr(target_os = "none", unsafe(no_mangle), unsafe(link_section = ".text.hot"))]
pub(super) extern "C" fn turnstile_light_other(_frame: &mut Frame, _esr: u64) -> u32 {
    Code::SYNC
}

/// Light tier of physical interrupts.
#[cfg_attr(target_os = "none", unsafe(no_mangle), unsafe(link_section = ".text.hot"))]
pub extern "C" fn turnstile_light_irq(frame: &mut Frame) -> u32 {
    irq::light::<Gicv3>(resident(frame), |_| {})
}

/// [`turnstile_light_irq`] of the vectors of a GICv2.
#[cfg_attr(target_os = "none", unsafe(no_mangle), unsafe(link_section = ".text.hot"))]
pub extern "C" fn turnstile_light_irq_gicv2(frame: &mut Frame) -> u32 {
    irq::light::<Gicv2>(resident(frame), |_| {})
}

/// [`turnstile_light_irq`] of the vectors of a GICv2 on a GICv3.
#[cfg_attr(target_os = "none", unsafe(no_mangle), unsafe(link_section = ".text.hot"))]
pub extern "C" fn turnstile_light_irq_legacy(frame: &mut Frame) -> u32 {
    irq::light::<Gicv3Legacy>(resident(frame), |_| {})
}

/// FIQ: nothing is configured as Group 0 or secure, so none is expected; one is ignored.
#[cfg_attr(target_os = "none", unsafe(no_mangle), unsafe(link_section = ".text.hot"))]
pub extern "C" fn turnstile_light_fiq(frame: &mut Frame) -> u32 {
    done(resident(frame))
}

/// SError while the guest ran: never light.
#[cfg_attr(target_os = "none", unsafe(no_mangle), unsafe(link_section = ".text.hot"))]
pub extern "C" fn turnstile_light_serror(_frame: &mut Frame) -> u32 {
    Code::SERROR
}

/// [`turnstile_light_irq`] where statistics are kept.
#[cfg_attr(target_os = "none", unsafe(no_mangle), unsafe(link_section = ".text.hot"))]
pub extern "C" fn turnstile_light_irq_timed(frame: &mut Frame) -> u32 {
    irq::light::<Gicv3>(resident(frame), |reason| frame.timing.note(reason))
}

/// [`turnstile_light_irq_gicv2`] where statistics are kept.
#[cfg_attr(target_os = "none", unsafe(no_mangle), unsafe(link_section = ".text.hot"))]
pub extern "C" fn turnstile_light_irq_gicv2_timed(frame: &mut Frame) -> u32 {
    irq::light::<Gicv2>(resident(frame), |reason| frame.timing.note(reason))
}

/// [`turnstile_light_irq_legacy`] where statistics are kept.
#[cfg_attr(target_os = "none", unsafe(no_mangle), unsafe(link_section = ".text.hot"))]
pub extern "C" fn turnstile_light_irq_legacy_timed(frame: &mut Frame) -> u32 {
    irq::light::<Gicv3Legacy>(resident(frame), |reason| frame.timing.note(reason))
}

/// [`turnstile_light_fiq`] where statistics are kept.
#[cfg_attr(target_os = "none", unsafe(no_mangle), unsafe(link_section = ".text.hot"))]
pub extern "C" fn turnstile_light_fiq_timed(frame: &mut Frame) -> u32 {
    frame.timing.note(Reason::OtherInterrupt);
    turnstile_light_fiq(frame)
}

/// [`turnstile_light_serror`] where statistics are kept.
#[cfg_attr(target_os = "none", unsafe(no_mangle), unsafe(link_section = ".text.hot"))]
pub extern "C" fn turnstile_light_serror_timed(frame: &mut Frame) -> u32 {
    frame.timing.note(Reason::MachineError);
    turnstile_light_serror(frame)
}
