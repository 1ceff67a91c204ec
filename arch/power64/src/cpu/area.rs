// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What each physical CPU has for itself. Here is the ground part; a module that has something for each CPU defines a type of
//! its own and finds the CPU's by [`PerCpu::slot`]. `boot/area.rs` puts the whole together.

use core::mem::offset_of;
use core::ptr;
use core::sync::atomic::AtomicBool;

use turnstile_vm::attention::KickToken;

use super::report::Reporter;

/// Bytes at the top of a stack that it does not begin with: the exit frame of the vCPU that runs on it. `boot.S` has the same
/// number.
pub const STACK_HEAD: u64 = 512;

/// Where a frame names the area of the CPU that runs on its stack, in bytes behind its beginning.
pub const CPU_IN_FRAME: usize = 376;

/// The ground part of a CPU's area. `boot.S` and `vectors.S` know the first three fields.
#[repr(C)]
pub struct PerCpu {
    /// The end of the stack on which faults of the hypervisor are reported.
    pub fault_stack_end: u64,
    /// Where such faults go on.
    pub report: Reporter,
    /// The end of its stack.
    pub stack_end: u64,
    /// Its number among the CPUs in use.
    pub index: usize,
    /// Its number in the machine: what PIR holds, what interrupts and doorbells are sent to.
    pub pir: u32,
    /// Set by the CPU itself once it runs on its own stack.
    pub online: AtomicBool,
}

const _: () = {
    assert!(offset_of!(PerCpu, fault_stack_end) == 0);
    assert!(offset_of!(PerCpu, report) == 8);
    assert!(offset_of!(PerCpu, stack_end) == 16);
};

/// What a module has for each physical CPU.
///
/// # Safety
/// Every CPU's area has one of these, so many bytes behind its ground part.
pub unsafe trait Slot: Sync + Sized + 'static {
    /// So many.
    const OFFSET: usize;
}

impl PerCpu {
    /// Makes the ground part of the area of a CPU that has not started.
    ///
    /// # Safety
    /// It is put at the place that [`Slot`] refers to, in a whole area whose address is exposed, and lives for ever.
    pub const unsafe fn new(
        index: usize,
        pir: u32,
        stack_end: u64,
        fault_stack_end: u64,
        report: Reporter,
    ) -> Self {
        Self { fault_stack_end, report, stack_end, index, pir, online: AtomicBool::new(false) }
    }

    /// Returns what kicks it: its number in the machine, and a bit that tells it from no token at all.
    #[inline(always)] // One load.
    pub fn kick_token(&self) -> KickToken {
        u64::from(self.pir) | 1 << 32
    }

    /// Returns what a module has for this CPU.
    #[inline(always)] // An address computation.
    pub fn slot<S: Slot>(&self) -> &S {
        // SAFETY: it is inside the area, so the sum does not wrap: the compiler is to know that it is not null. It is there
        // (`Slot`), it lives for ever (`PerCpu::new`), and only shared references to it are made. The reference to the ground
        // part does not reach it; the address of the whole, which is exposed, does.
        unsafe {
            let address = ptr::from_ref(self).addr().unchecked_add(S::OFFSET);
            &*ptr::with_exposed_provenance(address)
        }
    }
}

/// Returns this CPU's area.
#[cfg(target_os = "none")]
#[inline(always)] // Two instructions.
pub fn this() -> &'static PerCpu {
    let frame = super::regs::HSPRG0.read();
    // SAFETY: whoever moves to a stack sets HSPRG0 to the frame at its top, which names the area of the CPU that runs on it;
    // areas live for ever.
    unsafe { &**((frame + CPU_IN_FRAME as u64) as *const *const PerCpu) }
}

/// Returns this thread's area, which stands for a CPU in tests.
#[cfg(not(target_os = "none"))]
pub fn this() -> &'static PerCpu {
    unsafe extern "Rust" {
        /// `boot/area.rs`, which knows the whole.
        safe fn turnstile_power64_area() -> &'static PerCpu;
    }
    turnstile_power64_area()
}
