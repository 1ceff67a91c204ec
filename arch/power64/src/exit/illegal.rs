// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Instructions and facilities that the guest does not have, or not yet (Power ISA 3.0B Book III, 6.5.20 and 6.5.27).

use core::sync::atomic::{AtomicBool, Ordering};

use turnstile_vm::attention::Reasons;

use super::inject::{self, program};
use super::walk::{self, Context};
use super::{Code, done, resident};
use crate::cpu::regs::{DPDES, HFSCR, hfscr};
use crate::state::demand;
use crate::vcpu::facility;
use crate::vcpu::frame::Frame;
use crate::vcpu::interrupts;
use crate::vm::Vcpu;

/// An instruction that the CPU does not know, or that is the hypervisor's.
pub(super) fn instruction(frame: &mut Frame, _: &'static Vcpu) {
    inject::program(frame, program::ILLEGAL);
}

/// An instruction that the CPU leaves to the hypervisor: on some POWER9s one of transactions, whether or not HFSCR keeps those
/// from the guest. HSRR0 is behind it (Linux, `book3s_hv_tm.c`).
pub(super) fn soft_patch(frame: &mut Frame, _: &'static Vcpu) {
    frame.pc = frame.pc.wrapping_sub(4);
    inject::program(frame, program::ILLEGAL);
}

/// A facility that is switched off: light if it is given to the vCPU on demand.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
pub(super) extern "C" fn light_facility(frame: &mut Frame, _: u32) -> u32 {
    let cause = (HFSCR.read() >> hfscr::CAUSE_SHIFT) as u8;
    if demand::is_given(cause) { give(frame, cause) } else { Code::FULL }
}

#[inline(never)] // Apart from those that are not given.
fn give(frame: &mut Frame, cause: u8) -> u32 {
    match facility::demand(resident(frame), cause) {
        true => done(frame),
        false => Code::FULL,
    }
}

/// A facility that is not given to guests: doorbells between the threads of a core are carried out here, because the threads of
/// a guest's core may run anywhere, while the CPU's own neighbours may be somebody else's.
#[inline(never)] // Apart from other exits.
pub(super) fn facility(frame: &mut Frame) {
    let vcpu = resident(frame);
    if (HFSCR.read() >> hfscr::CAUSE_SHIFT) as u32 != hfscr::MSGP.trailing_zeros() {
        return inject::program(frame, program::ILLEGAL);
    }
    let context = Context::of(frame, vcpu);
    let fetch = |address| walk::fetch(&vcpu.vm.life().ram, &context, address);
    if fetch(frame.pc).is_some_and(|word| doorbell(frame, vcpu, word)) {
        frame.pc = frame.pc.wrapping_add(4);
    } else if INEXACT.load(Ordering::Relaxed)
        && let Some(address) = search(frame, vcpu, fetch)
    {
        frame.pc = address.wrapping_add(4);
    } else {
        inject::program(frame, program::ILLEGAL);
    }
}

/// Whether HSRR0 may be the address of an earlier instruction than the one that is meant.
static INEXACT: AtomicBool = AtomicBool::new(false);

/// Says that the machine is QEMU's. When a doorbell's facility is off, its TCG (10.0.2) has in HSRR0 where it has last come to
/// by an indirect branch or an interrupt's return, because `helper_hfscr_facility_check` finds no way back to the instruction.
/// CFAR is the last branch that was taken.
pub fn set_inexact(inexact: bool) {
    INEXACT.store(inexact, Ordering::Relaxed);
}

/// Returns an address from which on no branch has been taken: where the last one led to, if that is in the instruction, else
/// what HSRR0 says.
fn executed_from(pc: u64, came_from: u64, fetch: impl Fn(u64) -> Option<u32>) -> u64 {
    if crate::vcpu::switch::is_return(came_from) {
        return pc;
    }
    let Some(word) = fetch(came_from) else { return pc };
    let base = if word & 2 != 0 { 0 } else { came_from };
    match word >> 26 {
        B => base.wrapping_add_signed(i64::from((word << 6) as i32 >> 6 & !3)),
        BC => base.wrapping_add_signed(i64::from((word & 0xfffc) as u16 as i16)),
        _ => pc,
    }
}

/// Opcodes of branches (Power ISA 3.0B Book I, 2.4): B, BC, those to registers; and the system calls'.
const B: u32 = 18;
const BC: u32 = 16;
const BRANCH_TO_REGISTER: u32 = 19;
const SC: u32 = 17;

/// Carries out the instruction that has used a doorbell: the first one behind the last branch that was taken. Returns its
/// address; `None` if there is none.
///
/// If it is not there, what is at CFAR now is not the branch that was taken: it was taken in another address space, as returns
/// from interrupts are. Such a branch is indirect, and HSRR0 says where it led to.
#[cold]
fn search(frame: &mut Frame, vcpu: &'static Vcpu, fetch: impl Fn(u64) -> Option<u32>) -> Option<u64> {
    let start = executed_from(frame.pc, frame.came_from, &fetch);
    search_from(start, frame, vcpu, &fetch).or_else(|| search_from(frame.pc, frame, vcpu, &fetch))
}

/// Carries out the first instruction that uses a doorbell from an address on, unless what is before it leads elsewhere.
fn search_from(
    start: u64,
    frame: &mut Frame,
    vcpu: &'static Vcpu,
    fetch: impl Fn(u64) -> Option<u32>,
) -> Option<u64> {
    /// Instructions that are looked at: more than a compiler puts between two branches that are taken.
    const PATIENCE: u64 = 1024;
    for address in (0..PATIENCE).map(|n| start.wrapping_add(4 * n)) {
        let word = fetch(address)?;
        if doorbell(frame, vcpu, word) {
            return Some(address);
        }
        if leads_elsewhere(word) {
            return None;
        }
    }
    None
}

/// Says whether what follows an instruction is never executed behind it: B and SC, and branches to a register whose condition
/// always holds.
const fn leads_elsewhere(word: u32) -> bool {
    const ALWAYS: u32 = 0b10100 << 21;
    match word >> 26 {
        B => word & 1 == 0,
        SC => true,
        BRANCH_TO_REGISTER => matches!(word >> 1 & 0x3ff, 16 | 528) && word & ALWAYS == ALWAYS,
        _ => false,
    }
}

/// `msgsndp`, `msgclrp`, and the registers DPDES and TIR. False if it is none of them.
#[inline(always)] // The search is another place, and rare.
fn doorbell(frame: &mut Frame, vcpu: &'static Vcpu, instruction: u32) -> bool {
    const MSGSNDP: u32 = 142;
    const MSGCLRP: u32 = 174;
    const MFSPR: u32 = 339;
    const MTSPR: u32 = 467;
    const TIR: u32 = 446;
    const DPDES_NUMBER: u32 = DPDES::NUMBER;
    /// The only type of message.
    const DOORBELL: u64 = 5;
    if instruction >> 26 != 31 {
        return false;
    }
    let operation = instruction >> 1 & 0x3ff;
    let special = instruction >> 16 & 31 | instruction >> 6 & 0x3e0;
    let field = match operation {
        MSGSNDP | MSGCLRP => 11,
        MFSPR if matches!(special, DPDES_NUMBER | TIR) => 21,
        MTSPR if special == DPDES_NUMBER => 21,
        _ => return false,
    };
    let register = (instruction >> field & 31) as usize;
    let message = frame.gpr(register);
    let number = vcpu.thread_number() as u64;
    let is_doorbell = message >> 27 & 31 == DOORBELL;
    match operation {
        // Messages of other types are nobody's; of a doorbell that another thread has, nothing is cleared.
        MSGSNDP if is_doorbell && message & 0x7f == number => interrupts::set_doorbell(true),
        MSGSNDP if is_doorbell => send(vcpu, message & 0x7f),
        MSGCLRP if is_doorbell && message & 0x7f == number => interrupts::set_doorbell(false),
        MFSPR if special == TIR => frame.set_gpr(register, number),
        MFSPR => frame.set_gpr(register, doorbells(vcpu)),
        MTSPR => interrupts::set_doorbell(message >> number & 1 != 0),
        _ => {}
    }
    true
}

/// Rings at another thread of the same core; at one that is not there, nowhere.
fn send(vcpu: &'static Vcpu, thread: u64) {
    if let Some(other) = vcpu.core().get(thread as usize) {
        other.interrupts.ring();
        other.post(Reasons::REMOTE);
    }
}

/// DPDES of the core: a bit for each thread. Those of the others are what they have not looked at yet.
fn doorbells(vcpu: &'static Vcpu) -> u64 {
    let rings = |thread: &Vcpu| match thread.index == vcpu.index {
        true => DPDES.read() & 1 != 0,
        false => thread.interrupts.is_rung(),
    };
    vcpu.core().iter().enumerate().map(|(number, thread)| u64::from(rings(thread)) << number).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::regs::fakes;
    use crate::exit::wait;
    use crate::memory::GuestRam;
    use crate::vcpu::facility::tests::cores;
    use crate::vm::BootState;

    const MSGSNDP: u32 = 31 << 26 | 3 << 11 | 142 << 1;
    const MSGCLRP: u32 = 31 << 26 | 3 << 11 | 174 << 1;
    const MFTIR: u32 = 31 << 26 | 4 << 21 | (446 & 31) << 16 | (446 >> 5) << 11 | 339 << 1;
    const MFDPDES: u32 = 31 << 26 | 4 << 21 | (176 & 31) << 16 | (176 >> 5) << 11 | 339 << 1;

    fn execute(vcpu: &'static Vcpu, instruction: u32, message: u64) -> u64 {
        let mut frame = wait::frame(vcpu);
        frame.set_gpr(3, message);
        assert!(doorbell(&mut frame, vcpu, instruction));
        frame.gpr(4)
    }

    /// Of cores with two threads, the second one's first rings.
    #[test]
    fn doorbells_ring_in_their_own_core() {
        let vcpus = cores(4, 2);
        let sender = vcpus[2];
        assert_eq!([execute(vcpus[1], MFTIR, 0), execute(sender, MFTIR, 0)], [1, 0]);
        execute(sender, MSGSNDP, 5 << 27 | 1);
        assert_eq!(
            vcpus.iter().map(|vcpu| vcpu.interrupts.is_rung()).collect::<Vec<_>>(),
            [false, false, false, true]
        );
        assert!(vcpus[3].attention.take().contains(Reasons::REMOTE), "it is told");
        assert_eq!(fakes::read("DPDES"), 0, "the sender's own does not ring");
        assert_eq!(execute(sender, MFDPDES, 0), 0b10);
        interrupts::receive(vcpus[3]);
        assert_eq!(fakes::read("DPDES"), 1);
        assert!(!vcpus[3].interrupts.is_rung(), "taken once");
        // Neither type nor thread is anybody's.
        fakes::set("DPDES", 0);
        for nobody in [2, 0x7f, 4 << 27 | 1] {
            execute(sender, MSGSNDP, if nobody < 0x80 { 5 << 27 | nobody } else { nobody });
        }
        assert!(!vcpus.iter().any(|vcpu| vcpu.interrupts.is_rung() || vcpu.attention.is_pending()));
        execute(sender, MSGSNDP, 5 << 27);
        assert_eq!(fakes::read("DPDES"), 1);
        execute(sender, MSGCLRP, 5 << 27 | 1);
        assert_eq!(fakes::read("DPDES"), 1, "another thread's");
        execute(sender, MSGCLRP, 5 << 27);
        assert_eq!(fakes::read("DPDES"), 0);
    }

    /// On a machine that does not say where the instruction is, it is searched for behind the last branch that was taken.
    #[test]
    fn an_instruction_is_found_behind_the_last_branch() {
        const NOP: u32 = 24 << 26;
        const AHEAD: u32 = B << 26 | 12;
        const BACK: u32 = BC << 26 | 4 << 21 | 0xfff8;
        const RETURN: u32 = BRANCH_TO_REGISTER << 26 | 0b10100 << 21 | 16 << 1;
        const RETURN_IF: u32 = BRANCH_TO_REGISTER << 26 | 0b00100 << 21 | 16 << 1;
        let vcpu = cores(2, 2)[0];
        let at = |code: &'static [u32]| move |address: u64| code.get((address / 4) as usize).copied();
        let found = |code: &'static [u32]| {
            let mut frame = wait::frame(vcpu);
            frame.came_from = 0x1000;
            search(&mut frame, vcpu, at(code))
        };
        assert_eq!(found(&[NOP, BACK, RETURN_IF, MSGSNDP]), Some(12));
        assert_eq!(found(&[NOP, AHEAD, MSGSNDP]), None);
        assert_eq!(found(&[NOP, RETURN, MSGSNDP]), None);
        assert_eq!(found(&[SC << 26 | 2, MSGSNDP]), None);
        // What CFAR names is another instruction in this address space: it was behind HSRR0.
        let mut frame = wait::frame(vcpu);
        (frame.pc, frame.came_from) = (4, 12);
        assert_eq!(search(&mut frame, vcpu, at(&[NOP, NOP, MSGSNDP, AHEAD, NOP, NOP, RETURN])), Some(8));
        let from = |code, came_from| executed_from(0x40, came_from, at(code));
        assert_eq!(from(&[AHEAD, NOP, BACK, RETURN], 0), 12);
        assert_eq!(from(&[AHEAD, NOP, BACK, RETURN], 8), 0);
        assert_eq!(from(&[AHEAD, NOP, BACK, RETURN], 12), 0x40, "to a register");
        assert_eq!(from(&[AHEAD], 0x1000), 0x40, "nowhere");
    }

    /// A doorbell of one life of the VM does not ring in the next, nor is a prod of one there.
    #[test]
    fn a_life_begins_without_doorbells() {
        let vcpus = cores(2, 2);
        execute(vcpus[0], MSGSNDP, 5 << 27 | 1);
        vcpus[1].post(Reasons::UNHALT);
        vcpus[0].vm.prepare(0, GuestRam::default(), BootState::default());
        assert!(!vcpus[1].interrupts.is_rung() && !vcpus[1].attention.is_pending());
    }
}
