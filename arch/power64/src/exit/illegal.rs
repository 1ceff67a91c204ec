// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Instructions and facilities that the guest does not have, or not yet (Power ISA 3.0B Book III, 6.5.20 and 6.5.27).

use super::inject::{self, program};
use super::walk::{self, Context};
use super::{Code, done, resident};
use crate::facility;
use crate::frame::Frame;
use crate::regs::{DPDES, HFSCR, PIDR, hfscr};
use crate::vcpu::Vcpu;

/// An instruction that the CPU does not know, or that is the hypervisor's.
pub(super) fn instruction(frame: &mut Frame, _: &'static Vcpu) {
    inject::program(frame, program::ILLEGAL);
}

/// A facility that is switched off: light if it is given to the vCPU on demand.
pub(super) fn light_facility(frame: &mut Frame) -> u32 {
    match facility::demand(resident(frame), (HFSCR.read() >> hfscr::CAUSE_SHIFT) as u8) {
        true => done(frame),
        false => Code::FULL,
    }
}

/// A facility that is not given to guests: doorbells between the threads of a core are carried out here, because a vCPU is
/// the only thread of its core, while the CPU's own neighbours may be somebody else's.
pub(super) fn facility(frame: &mut Frame, vcpu: &'static Vcpu) {
    if (HFSCR.read() >> hfscr::CAUSE_SHIFT) as u32 != hfscr::MSGP.trailing_zeros() {
        return inject::program(frame, program::ILLEGAL);
    }
    let context = Context { msr: frame.msr, process: PIDR.read(), process_table: vcpu.vm.process_table() };
    let carried_out =
        walk::fetch(&vcpu.vm.life().ram, &context, frame.pc).is_some_and(|word| doorbell(frame, word));
    if carried_out {
        frame.pc = frame.pc.wrapping_add(4);
    } else {
        inject::program(frame, program::ILLEGAL);
    }
}

/// `msgsndp`, `msgclrp`, and the registers DPDES and TIR. False if it is none of them.
fn doorbell(frame: &mut Frame, instruction: u32) -> bool {
    const MSGSNDP: u32 = 142;
    const MSGCLRP: u32 = 174;
    const MFSPR: u32 = 339;
    const MTSPR: u32 = 467;
    const TIR: u32 = 446;
    const DPDES_NUMBER: u32 = DPDES::NUMBER;
    /// The only type of message.
    const DOORBELL: u64 = 5 << 27;
    let register = (instruction >> 21 & 31) as usize;
    let message = frame.gpr((instruction >> 11 & 31) as usize);
    let special = instruction >> 16 & 31 | instruction >> 6 & 0x3e0;
    let mine = message & 0xf800_007f == DOORBELL;
    match (instruction >> 26, instruction >> 1 & 0x3ff) {
        // Messages to other threads, or of other types, are nobody's.
        (31, MSGSNDP) if mine => set_doorbell(true),
        (31, MSGCLRP) if mine => set_doorbell(false),
        (31, MSGSNDP | MSGCLRP) => {}
        (31, MFSPR) if special == DPDES_NUMBER => frame.set_gpr(register, DPDES.read() & 1),
        (31, MFSPR) if special == TIR => frame.set_gpr(register, 0),
        (31, MTSPR) if special == DPDES_NUMBER => set_doorbell(frame.gpr(register) & 1 != 0),
        _ => return false,
    }
    true
}

/// Lets the doorbell of the resident vCPU ring, or not.
fn set_doorbell(rings: bool) {
    // SAFETY: the vCPU's own interrupt.
    unsafe { DPDES.write(u64::from(rings)) };
}
