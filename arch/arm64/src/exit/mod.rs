// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exits: the light tier, and what it hands to the full tier.
//!
//! A light handler is an ordinary function of the C ABI, so the compiler preserves the guest's callee-saved
//! registers and the vector saved the others. It leaves every system register of the guest where it is, does
//! not touch the interrupt controller or the timers unless the exit is about them, and returns to the guest
//! after one look at the attention word. What it cannot finish it leaves, with nothing done, to [`full`].

pub mod full;
mod hvc;
mod inject;
mod irq;
mod mmio;
#[cfg(feature = "ablation")]
pub(crate) mod naive;
mod sysreg;
pub mod wait;

use turnstile_exitstat::Reason;
use turnstile_vm::attention::Reasons;

use crate::frame::Frame;
#[cfg(any(target_os = "none", test))]
use crate::irq::Gic;
use crate::irq::{Gicv2, Gicv3, Gicv3Legacy};
use crate::regs;
use crate::statistics;
use crate::vcpu::Vcpu;

/// Exception classes, ESR_EL2.EC (Arm ARM D24.2.41).
pub(crate) mod class {
    /// Returns the class of a syndrome. Above it lies ISS2 (bits 55:32), which must not get into it.
    #[inline(always)] // One instruction.
    pub const fn of(esr: u64) -> u64 {
        esr >> 26 & 0x3f
    }

    pub const WFX: u64 = 0x01;
    pub const FP: u64 = 0x07;
    pub const PAUTH: u64 = 0x09;
    pub const HVC64: u64 = 0x16;
    pub const SMC64: u64 = 0x17;
    pub const SYSTEM_REGISTER: u64 = 0x18;
    pub const SVE: u64 = 0x19;
    pub const INSTRUCTION_ABORT: u64 = 0x20;
    pub const DATA_ABORT: u64 = 0x24;
}

/// Why the light tier did not re-enter the guest: [`Code::SYNC`] and so on, or, without [`Code::FULL`], the
/// attention word is not zero.
pub struct Code;

impl Code {
    /// The exit itself is not finished.
    pub const FULL: u32 = 1 << 31;
    /// A synchronous exception, described by ESR_EL2.
    pub const SYNC: u32 = Self::FULL;
    /// A physical interrupt; its INTID is in the low 24 bits, already acknowledged.
    pub const IRQ: u32 = Self::FULL | 1 << 28;
    /// An SError from the guest.
    pub const SERROR: u32 = Self::FULL | 2 << 28;
    /// The interrupt model has to be settled before the guest is entered.
    pub const SETTLE: u32 = Self::FULL | 3 << 28;
    /// The exit is light, but is about the value of a register that compiled code preserves and that is still in the
    /// CPU: `vectors.S`, which knows this bit, stores x19–x29 and calls [`turnstile_light_preserved`].
    pub const PRESERVED: u32 = Self::FULL | 1 << 30;
}

/// No attention word, which light exits return as it is, is taken for a code: its reasons are in the bits that codes
/// have for an INTID.
const _: () = assert!(Reasons::all().bits() <= 0xff_ffff);

/// Moves past the instruction that exited.
///
/// PSTATE.SS and BTYPE stay as they are: a guest that single-steps over a trapped instruction sees the step
/// one instruction later (CAVEATS.md).
#[inline(always)] // Three instructions of most light exits.
fn skip() {
    // SAFETY: trapped instructions of AArch64 are four bytes long; the guest's own PC advances.
    unsafe { regs::ELR_EL2.write(regs::ELR_EL2.read().wrapping_add(4)) };
}

/// Ends a light exit that is done: what the vector branches on is the attention word itself.
#[inline(always)] // One load: the end of every light exit.
fn done(vcpu: &Vcpu) -> u32 {
    vcpu.attention.word()
}

/// Returns the resident vCPU.
#[inline(always)] // One load.
pub(crate) fn resident(frame: &Frame) -> &'static Vcpu {
    // SAFETY: the run loop stores a vCPU that lives for ever before the guest is first entered.
    unsafe { &*frame.vcpu }
}

/// A light handler of synchronous exceptions: takes the frame and ESR_EL2, returns zero to re-enter, the
/// attention word, or a [`Code`].
///
/// The frequent handlers are leaves without a stack frame of their own; what needs one is behind a tail call.
type Handler = extern "C" fn(&mut Frame, u64) -> u32;

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
extern "C" fn turnstile_light_preserved(frame: &mut Frame, esr: u64) -> u32 {
    sysreg::light_preserved::<Gicv3>(frame, esr)
}

/// [`turnstile_light_preserved`] of the vectors of a GICv2.
#[cfg(any(target_os = "none", test))]
#[cfg_attr(target_os = "none", unsafe(no_mangle), unsafe(link_section = ".text.hot"))]
extern "C" fn turnstile_light_preserved_gicv2(frame: &mut Frame, esr: u64) -> u32 {
    light_preserved_with_sgir::<Gicv2>(frame, esr)
}

/// [`turnstile_light_preserved`] of the vectors of a GICv2 on a GICv3.
#[cfg(any(target_os = "none", test))]
#[cfg_attr(target_os = "none", unsafe(no_mangle), unsafe(link_section = ".text.hot"))]
extern "C" fn turnstile_light_preserved_legacy(frame: &mut Frame, esr: u64) -> u32 {
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
extern "C" fn turnstile_light_other(_frame: &mut Frame, _esr: u64) -> u32 {
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
    irq::light::<Gicv3>(resident(frame), |reason| statistics::note(frame, reason))
}

/// [`turnstile_light_irq_gicv2`] where statistics are kept.
#[cfg_attr(target_os = "none", unsafe(no_mangle), unsafe(link_section = ".text.hot"))]
pub extern "C" fn turnstile_light_irq_gicv2_timed(frame: &mut Frame) -> u32 {
    irq::light::<Gicv2>(resident(frame), |reason| statistics::note(frame, reason))
}

/// [`turnstile_light_irq_legacy`] where statistics are kept.
#[cfg_attr(target_os = "none", unsafe(no_mangle), unsafe(link_section = ".text.hot"))]
pub extern "C" fn turnstile_light_irq_legacy_timed(frame: &mut Frame) -> u32 {
    irq::light::<Gicv3Legacy>(resident(frame), |reason| statistics::note(frame, reason))
}

/// [`turnstile_light_fiq`] where statistics are kept.
#[cfg_attr(target_os = "none", unsafe(no_mangle), unsafe(link_section = ".text.hot"))]
pub extern "C" fn turnstile_light_fiq_timed(frame: &mut Frame) -> u32 {
    statistics::note(frame, Reason::OtherInterrupt);
    turnstile_light_fiq(frame)
}

/// [`turnstile_light_serror`] where statistics are kept.
#[cfg_attr(target_os = "none", unsafe(no_mangle), unsafe(link_section = ".text.hot"))]
pub extern "C" fn turnstile_light_serror_timed(frame: &mut Frame) -> u32 {
    statistics::note(frame, Reason::MachineError);
    turnstile_light_serror(frame)
}

#[cfg(test)]
pub(crate) mod tests;
