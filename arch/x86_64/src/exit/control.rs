// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes of CR8, the task priority, on machines where a guest must not do that itself ([`crate::cpu::svm::carries_out_cr8`]). Elsewhere
//! the CPU does it, without an exit.

use turnstile_x86insn::MAX_LENGTH;
use turnstile_x86insn::control::{MoveToCr8, NoMove, move_to_cr8};

use super::access;
use crate::cpu::svm::Vmcb;
use crate::cpu::svm::event::Exception;
use crate::cpu::svm::vmcb::interrupt;
use crate::memory::GuestRam;
use crate::vcpu::frame::Frame;
use crate::vcpu::next::skip_to;

/// Carries the move out as the CPU would: V_TPR changes, and whether the guest takes what is offered to it is compared anew at
/// its entry.
pub(super) fn write_cr8(frame: &Frame, vmcb: &mut Vmcb, ram: &GuestRam) {
    /// Bits that a priority has; the others must be zero (APM vol. 2, 3.1.5).
    const PRIORITY: u64 = 0xf;
    let instruction = match instruction(vmcb, ram) {
        Ok(instruction) => instruction,
        // Its code, or the rest of it, is not there any more. Executed again, it faults as it should.
        Err(NoMove::Short) => return,
        // Executed again, it might leave the guest again, for ever.
        Err(NoMove::Other) => return Exception::UNDEFINED.inject(vmcb),
    };
    let mask = if instruction.from.size == 8 { u64::MAX } else { u32::MAX.into() };
    let value = frame.get(vmcb, instruction.from.number.into()) & mask;
    if vmcb.cpl() != 0 || value & !PRIORITY != 0 {
        return Exception::PROTECTION.inject(vmcb);
    }
    vmcb.set_interrupts(vmcb.interrupts() & !interrupt::TPR | value as u32);
    skip_to(vmcb, vmcb.rip().wrapping_add(instruction.length.into()));
}

fn instruction(vmcb: &Vmcb, ram: &GuestRam) -> Result<MoveToCr8, NoMove> {
    let (code, valid) = access::fetch(vmcb, ram).ok_or(NoMove::Short)?;
    let (bytes, valid) = (code.to_le_bytes(), valid.min(MAX_LENGTH));
    move_to_cr8(bytes.get(..valid).unwrap_or(&bytes), access::bitness(vmcb))
}
