// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How an instruction that exited is stepped over.

use core::marker::PhantomData;

use crate::cpu::regs::flags;
use crate::cpu::svm::{Vmcb, event};

/// Bytes of instructions without prefixes.
pub(crate) mod length {
    pub const CPUID: u64 = 2;
    pub const HLT: u64 = 1;
    /// INVD and WBINVD.
    pub const CACHE: u64 = 2;
    /// RDMSR and WRMSR.
    pub const MSR: u64 = 2;
    /// F3 90.
    pub const PAUSE: u64 = 2;
    pub const VMMCALL: u64 = 3;
    pub const XSETBV: u64 = 3;
}

/// How an instruction that exited is stepped over.
pub trait Next: 'static {
    /// Whether light exits count events: for vCPUs that keep statistics.
    const COUNTS: bool = false;
    /// Returns where the next instruction is. `length` is that of the instruction without prefixes.
    fn address(vmcb: &Vmcb, length: u64) -> u64;
}

/// On a CPU that does not name the next instruction: by the length that the instruction has. Redundant prefixes, which no
/// compiler or assembler gives these instructions, are not counted (CAVEATS.md).
pub struct Known;

impl Next for Known {
    #[inline(always)] // One addition.
    fn address(vmcb: &Vmcb, length: u64) -> u64 {
        vmcb.rip().wrapping_add(length)
    }
}

/// On a CPU that does ([`crate::cpu::svm::Features::NEXT_RIP`]).
pub struct Named;

impl Next for Named {
    #[inline(always)] // One load.
    fn address(vmcb: &Vmcb, _: u64) -> u64 {
        vmcb.next_rip()
    }
}

/// For vCPUs that keep statistics.
pub struct Counted<N>(PhantomData<N>);

impl<N: Next> Next for Counted<N> {
    const COUNTS: bool = true;

    #[inline(always)] // Its type's.
    fn address(vmcb: &Vmcb, length: u64) -> u64 {
        N::address(vmcb, length)
    }
}

/// Moves past the instruction that exited.
#[inline(always)] // Seven instructions of most light exits.
pub(crate) fn skip<N: Next>(vmcb: &mut Vmcb, length: u64) {
    skip_to(vmcb, N::address(vmcb, length));
}

/// Goes on at `next`, as if the instruction before had been executed: its interrupt shadow is over, and who steps
/// through the guest gets its trap.
#[inline(always)] // Part of `skip`.
pub(crate) fn skip_to(vmcb: &mut Vmcb, next: u64) {
    vmcb.set_rip(next);
    vmcb.set_interrupt_shadow(0);
    if vmcb.rflags() & (flags::TRAP | flags::RESUME) != 0 {
        event::executed(vmcb);
    }
}
