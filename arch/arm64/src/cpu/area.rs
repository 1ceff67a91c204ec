// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The per-CPU area. Here is its ground part, which assembly and all of this crate know; what modules above want for each
//! CPU they define themselves ([`Slot`]). The whole is put together in [`crate::boot::area`].

use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use turnstile_arch_common::mmio::Registers;
use turnstile_vm::attention::KickToken;

use super::guard::Guard;
use super::regs;

/// What each physical CPU has for itself, the ground part. `boot.S` and `vectors.S` know the first two fields, `guards.S` the
/// third.
#[repr(C)]
pub struct PerCpu {
    /// Top of its stack, where its exit frame begins.
    pub stack_top: u64,
    /// Top of the stack on which faults of the hypervisor are reported.
    pub fault_stack_top: u64,
    /// What it does first on each exit.
    pub guard: Guard,
    /// Its number among the CPUs in use.
    pub index: usize,
    /// Affinity fields of its MPIDR_EL1.
    pub affinity: u64,
    /// What kicks it; known once it runs. Private, so that there is no area but those that [`PerCpu::new`] makes.
    kick_token: AtomicU64,
    /// Its redistributor; with GICv2 the distributor, of whose first registers each CPU has its own.
    pub redistributor: Registers,
    /// Set by the CPU itself once it runs on its own stack.
    pub online: AtomicBool,
}

const _: () = assert!(core::mem::offset_of!(PerCpu, guard) == 16);

/// Something that each CPU has one of, in its area.
///
/// # Safety
/// Each area has one, in its place from the beginning, [`Slot::OFFSET`] bytes behind the beginning of its [`PerCpu`]; nobody
/// else has it but by shared references.
pub unsafe trait Slot: Sized + Sync + 'static {
    /// Where it is.
    const OFFSET: usize;
}

impl PerCpu {
    /// Makes that of a CPU that has not started.
    ///
    /// # Safety
    /// It becomes part of an area that has all [`Slot`]s, and is not used before that is where it stays, and exposed.
    pub const unsafe fn new(index: usize, affinity: u64, stacks: [u64; 2], redistributor: Registers) -> Self {
        let [stack_top, fault_stack_top] = stacks;
        Self {
            stack_top,
            fault_stack_top,
            guard: Guard::new(),
            index,
            affinity,
            kick_token: AtomicU64::new(0),
            redistributor,
            online: AtomicBool::new(false),
        }
    }

    /// Returns what kicks it.
    #[inline(always)] // One load.
    pub fn kick_token(&self) -> KickToken {
        self.kick_token.load(Ordering::Relaxed)
    }

    /// Says what kicks it, before it is online.
    pub fn set_kick_token(&self, token: KickToken) {
        self.kick_token.store(token, Ordering::Relaxed);
    }

    /// Returns what this CPU has of an `S`.
    #[inline(always)] // An address computation.
    pub fn slot<S: Slot>(&self) -> &S {
        // Of the whole area, not of this part.
        let area = ptr::with_exposed_provenance::<u8>(ptr::from_ref(self).addr());
        // SAFETY: this is the beginning of an area, by the contract of `PerCpu::new`, which lives for ever and was exposed as a
        // whole; so there is an `S` in it, by the contract of `Slot`.
        unsafe { &*area.add(S::OFFSET).cast::<S>() }
    }
}

/// Returns this CPU's area.
pub fn this() -> &'static PerCpu {
    let address = regs::TPIDR_EL2.read() as usize;
    // SAFETY: boot code sets TPIDR_EL2 to the `PerCpu` of an area that lives for ever, and was exposed, before any Rust runs
    // that gets here; nothing changes it afterwards.
    unsafe { &*ptr::with_exposed_provenance::<PerCpu>(address) }
}
