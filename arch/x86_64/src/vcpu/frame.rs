// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The exit frame: where the run loop stores the guest's general registers.
//!
//! One frame lies at the top of each stack, and RSP points into it while a guest runs: VMRUN keeps it in the host's save
//! area. A light exit pushes the registers that compiled code may clobber (System V ABI: RCX, RDX, RSI, RDI, R8–R11); RAX
//! and RSP are in the control block; RBX, RBP and R12–R15 stay in the CPU, and are stored when an exit becomes full.

use turnstile_exitstat::{Page, Timing};

use crate::cpu::svm::Vmcb;
use crate::cpu::{STACK_HEAD, STACK_TAIL};
use crate::vm::Vcpu;
use crate::vm::thread::Thread;

/// The general registers of the resident vCPU but RAX and RSP, and whose they are.
///
/// `vectors.S` knows this layout.
#[repr(C, align(16))]
pub struct Frame {
    /// R11 down to R8, RDI, RSI, RDX, RCX; then RBX, RBP, R12 to R15.
    slots: [u64; 14],
    /// The control block of the vCPU: its physical address, too.
    pub vmcb: *mut Vmcb,
    /// The vCPU.
    pub vcpu: *const Vcpu,
    /// The vCPU's statistics, and the exit that is being handled. Only the timed loop looks at it.
    pub timing: Timing,
    /// SPEC_CTRL of the guest, with the hypervisor's bits, and of the hypervisor: only run loops that switch it look here.
    pub spec_ctrl: [u32; 2],
}

const _: () = assert!(STACK_TAIL + size_of::<Frame>() as u64 <= STACK_HEAD && STACK_HEAD.is_multiple_of(16));

const _: () = {
    use core::mem::offset_of;
    assert!(offset_of!(Frame, vmcb) == 112);
    assert!(offset_of!(Frame, vcpu) == 120);
    assert!(offset_of!(Frame, timing) == 128);
    assert!(offset_of!(Frame, spec_ctrl) == 152);
    assert!(size_of::<Frame>() == 160);
};

/// The numbers of general registers in instructions (APM vol. 3, 1.8.2).
pub mod number {
    /// RAX.
    pub const RAX: usize = 0;
    /// RCX.
    pub const RCX: usize = 1;
    /// RDX.
    pub const RDX: usize = 2;
    /// RBX.
    pub const RBX: usize = 3;
    /// RSP.
    pub const RSP: usize = 4;
    /// RBP.
    pub const RBP: usize = 5;
    /// RSI.
    pub const RSI: usize = 6;
    /// RDI.
    pub const RDI: usize = 7;
}

/// The slot of each register by its number; RAX and RSP have none.
const SLOTS: [usize; 16] = [14, 7, 6, 8, 14, 9, 5, 4, 3, 2, 1, 0, 10, 11, 12, 13];

/// How many slots the light tier fills.
const PUSHED: usize = 8;

impl Frame {
    /// Makes an empty frame for `vcpu`, which may keep statistics in a `page`.
    pub const fn new(vcpu: *const Vcpu, vmcb: *mut Vmcb, page: Option<&'static Page>) -> Self {
        Self { slots: [0; 14], vmcb, vcpu, timing: Timing::new(page), spec_ctrl: [0; 2] }
    }

    /// Clears every general register.
    pub fn clear(&mut self) {
        self.slots = [0; 14];
    }

    /// RCX.
    #[inline(always)] // One load.
    pub fn rcx(&self) -> u64 {
        self.slots[7]
    }

    /// RDX.
    #[inline(always)] // One load.
    pub fn rdx(&self) -> u64 {
        self.slots[6]
    }

    /// RSI.
    #[inline(always)] // One load.
    pub fn rsi(&self) -> u64 {
        self.slots[5]
    }

    /// RBX, when it has been stored.
    #[inline(always)] // One load.
    pub fn rbx(&self) -> u64 {
        self.slots[8]
    }

    /// Sets RCX.
    #[inline(always)] // One store.
    pub fn set_rcx(&mut self, value: u64) {
        self.slots[7] = value;
    }

    /// Sets RDX.
    #[inline(always)] // One store.
    pub fn set_rdx(&mut self, value: u64) {
        self.slots[6] = value;
    }

    /// Sets RBX, where it has been stored and is loaded again.
    #[inline(always)] // One store.
    pub fn set_rbx(&mut self, value: u64) {
        self.slots[8] = value;
    }

    /// EDX:EAX, as WRMSR and XSETBV have it.
    #[inline(always)] // Three instructions.
    pub fn pair(&self, vmcb: &Vmcb) -> u64 {
        self.rdx() << 32 | u64::from(vmcb.rax() as u32)
    }

    /// Sets EDX:EAX, as RDMSR does.
    #[inline(always)] // Four instructions.
    pub fn set_pair(&mut self, vmcb: &mut Vmcb, value: u64) {
        vmcb.set_rax(u64::from(value as u32));
        self.set_rdx(value >> 32);
    }

    /// Returns where a register is that the light tier has: RAX, or one that was pushed.
    #[inline(always)] // A few instructions.
    pub fn place(&mut self, vmcb: &mut Vmcb, register: usize) -> Option<*mut u64> {
        match SLOTS[register & 15] {
            slot @ 0..PUSHED => Some(&raw mut self.slots[slot]),
            _ if register == number::RAX => Some(vmcb.rax_place()),
            _ => None,
        }
    }

    /// Returns the slot of a register that the light tier pushes.
    pub fn slot(register: usize) -> Option<usize> {
        Some(SLOTS[register & 15]).filter(|slot| *slot < PUSHED)
    }

    /// Reads a slot that the light tier fills.
    #[inline(always)] // Two instructions.
    pub fn pushed(&self, slot: usize) -> u64 {
        self.slots[slot % PUSHED]
    }

    /// Reads a register by its number, when all have been stored.
    pub fn get(&self, vmcb: &Vmcb, register: usize) -> u64 {
        match self.slots.get(SLOTS[register & 15]) {
            Some(value) => *value,
            None if register & 15 == number::RAX => vmcb.rax(),
            None => vmcb.rsp(),
        }
    }

    /// Writes a register by its number, when all have been stored.
    pub fn set(&mut self, vmcb: &mut Vmcb, register: usize, value: u64) {
        match self.slots.get_mut(SLOTS[register & 15]) {
            Some(slot) => *slot = value,
            None if register & 15 == number::RAX => vmcb.set_rax(value),
            None => vmcb.set_rsp(value),
        }
    }
}

/// Returns the resident vCPU.
#[inline(always)] // One load.
pub(crate) fn resident(frame: &Frame) -> &'static Vcpu {
    // SAFETY: the run loop stores a vCPU that lives for ever before the guest is first entered.
    unsafe { &*frame.vcpu }
}

/// Returns where the exit frame of a thread is: at the top of its stack.
pub(crate) fn of(thread: &Thread) -> u64 {
    thread.stack_end - STACK_TAIL - size_of::<Frame>() as u64
}
