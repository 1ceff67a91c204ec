// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Instructions, and the per-CPU area.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use spin::Once;
pub use turnstile_arch_common::relax;
use turnstile_vm::attention::KickToken;

use crate::descriptors::Descriptors;
use crate::facility::Holder;
use crate::frame::Frame;
use crate::sched::Scheduler;
use crate::svm::asid::Asids;
use crate::time::Deadlines;

/// Bytes of a block that holds a stack, and its alignment: the lowest page is unmapped, the last word is the address of
/// the area of the CPU that runs on it. So that [`this`] finds the area from the stack pointer alone: FS and GS are the
/// guest's while it is resident.
pub const STACK_BLOCK: u64 = 64 * 1024;

/// Bytes at the end of a stack's block that are not stack: the address of the CPU's area, and what keeps 16 bytes aligned.
pub const STACK_TAIL: u64 = 16;

/// Bytes at the end of a CPU's stack that it does not begin with: the tail, and below that the exit frame of the vCPU that
/// runs on it. `boot.S` has the same number.
pub const STACK_HEAD: u64 = 256;

const _: () = assert!(STACK_TAIL + size_of::<Frame>() as u64 <= STACK_HEAD && STACK_HEAD.is_multiple_of(16));

/// What each physical CPU has for itself.
#[repr(C)]
pub struct PerCpu {
    /// Interrupts that have arrived and nobody has served: written by `interrupts.S`, which knows that it is the first field.
    pub arrived: AtomicU32,
    /// The end of its stack's block, [`STACK_TAIL`] bytes above its stack.
    pub stack_end: u64,
    /// The end of the block of the stack on which faults of the hypervisor are reported.
    pub fault_stack_end: u64,
    /// Where VMRUN saves the host's state: a page of its own.
    pub host_save: u64,
    /// Its number among the CPUs in use.
    pub index: usize,
    /// What its local APIC is called.
    pub apic_id: u32,
    /// What kicks it; known once it runs.
    pub kick_token: AtomicU64,
    /// Set by the CPU itself once it runs on its own stack.
    pub online: AtomicBool,
    /// What its timer is to ring for.
    pub deadlines: Deadlines,
    /// Its global descriptor table and task state segment: its own affair.
    pub descriptors: UnsafeCell<Descriptors>,
    /// Its run queue, if vCPUs share it.
    pub scheduler: Once<Scheduler>,
    /// Whose state its registers hold.
    pub holder: Holder,
    /// By which its TLB tells vCPUs apart.
    pub asids: Asids,
}

// SAFETY: only its own CPU touches the descriptors, once.
unsafe impl Sync for PerCpu {}

impl PerCpu {
    /// Returns what kicks it.
    #[inline(always)] // One load.
    pub fn kick_token(&self) -> KickToken {
        self.kick_token.load(Ordering::Relaxed)
    }
}

/// Returns this CPU's area.
#[cfg(target_os = "none")]
#[inline(always)] // Three instructions.
pub fn this() -> &'static PerCpu {
    let end: u64;
    // SAFETY: each stack that Rust runs on is in a block of STACK_BLOCK bytes, whose last word boot code, or whoever moves
    // the stack to another CPU, has set to an area that lives for ever. Not `pure`: a stack may move.
    unsafe {
        core::arch::asm!(
            "mov {end}, rsp",
            "or {end}, {mask}",
            end = out(reg) end, mask = const STACK_BLOCK - 1, options(nomem, nostack)
        );
        *((end - 7) as *const &'static PerCpu)
    }
}

/// Returns this thread's area, which stands for a CPU in tests.
#[cfg(not(target_os = "none"))]
pub fn this() -> &'static PerCpu {
    std::thread_local! {
        static AREA: &'static PerCpu = Box::leak(Box::new(PerCpu {
            arrived: AtomicU32::new(0),
            stack_end: 0,
            fault_stack_end: 0,
            host_save: 0,
            index: 0,
            apic_id: 0,
            kick_token: AtomicU64::new(0),
            online: AtomicBool::new(true),
            deadlines: Deadlines::new(),
            descriptors: UnsafeCell::new(Descriptors::new()),
            scheduler: Once::new(),
            holder: Holder::new(),
            asids: Asids::new(0, 16, false),
        }));
    }
    AREA.with(|area| *area)
}

/// Stops this CPU for good.
pub fn halt() -> ! {
    loop {
        #[cfg(target_os = "none")]
        // SAFETY: waits with interrupts off; changes nothing.
        unsafe {
            core::arch::asm!("cli", "hlt", options(nomem, nostack));
        }
        #[cfg(not(target_os = "none"))]
        std::thread::park();
    }
}

/// What CPUID says at a leaf and subleaf (APM vol. 3, appendix E): EAX, EBX, ECX, EDX.
pub fn cpuid(leaf: u32, subleaf: u32) -> [u32; 4] {
    #[cfg(target_arch = "x86_64")]
    {
        let result = core::arch::x86_64::__cpuid_count(leaf, subleaf);
        [result.eax, result.ebx, result.ecx, result.edx]
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = (leaf, subleaf);
        [0; 4]
    }
}
