// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Instructions, and the per-CPU area.

use core::sync::atomic::AtomicBool;

use spin::Once;
pub use turnstile_arch_common::relax;
use turnstile_vm::attention::KickToken;

use crate::facility::Holder;
use crate::frame::Frame;
use crate::sched::Scheduler;
use crate::time::Deadlines;

macro_rules! instruction {
    ($(#[$doc:meta])* $name:ident, $asm:literal) => {
        $(#[$doc])*
        #[inline(always)] // One instruction.
        pub fn $name() {
            #[cfg(target_os = "none")]
            // SAFETY: a barrier; memory is not changed, and the compiler may not move accesses across it because the asm
            // is not `nomem`.
            unsafe {
                core::arch::asm!($asm, options(nostack, preserves_flags));
            }
        }
    };
}

instruction!(
    /// Context synchronization (Power ISA 3.0B Book II, 4.6.1).
    isync,
    "isync"
);
instruction!(
    /// Orders all accesses (Book II, 4.6.3).
    sync,
    "sync"
);
instruction!(
    /// Orders accesses to memory that is cached (Book II, 4.6.3).
    lwsync,
    "lwsync"
);
instruction!(
    /// Orders translation tables, too (Book III, 5.9.2).
    ptesync,
    "ptesync"
);
instruction!(
    /// Orders cache-inhibited accesses (Book II, 4.6.3).
    eieio,
    "eieio"
);

/// Bytes at the top of a stack that it does not begin with: the exit frame of the vCPU that runs on it. `boot.S` has the same
/// number.
pub const STACK_HEAD: u64 = 512;

const _: () = assert!(size_of::<Frame>() as u64 <= STACK_HEAD && STACK_HEAD.is_multiple_of(16));

/// Where vectors go on with an interrupt of the hypervisor itself: what it has left, and the vector.
#[cfg(target_os = "none")]
pub type Reporter = extern "C" fn(&crate::fault::Report, u64) -> !;
/// On the host nothing interrupts.
#[cfg(not(target_os = "none"))]
pub type Reporter = ();

/// What each physical CPU has for itself. `boot.S` and `vectors.S` know the first three fields.
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
    /// What its timer is to ring for.
    pub deadlines: Deadlines,
    /// Its run queue, if vCPUs share it.
    pub scheduler: Once<Scheduler>,
    /// Whose state its registers hold.
    pub holder: Holder,
}

#[cfg(target_os = "none")]
const _: () = {
    use core::mem::offset_of;
    assert!(offset_of!(PerCpu, fault_stack_end) == 0);
    assert!(offset_of!(PerCpu, report) == 8);
    assert!(offset_of!(PerCpu, stack_end) == 16);
};

impl PerCpu {
    /// Makes the area of a CPU that has not started.
    pub const fn new(index: usize, pir: u32, stack_end: u64, fault_stack_end: u64) -> Self {
        Self {
            fault_stack_end,
            #[cfg(target_os = "none")]
            report: crate::fault::turnstile_fault,
            #[cfg(not(target_os = "none"))]
            report: (),
            stack_end,
            index,
            pir,
            online: AtomicBool::new(false),
            deadlines: Deadlines::new(),
            scheduler: Once::new(),
            holder: Holder::new(),
        }
    }

    /// Returns what kicks it: its number in the machine, and a bit that tells it from no token at all.
    #[inline(always)] // One load.
    pub fn kick_token(&self) -> KickToken {
        u64::from(self.pir) | 1 << 32
    }
}

/// Returns this CPU's area.
#[cfg(target_os = "none")]
#[inline(always)] // Two instructions.
pub fn this() -> &'static PerCpu {
    // SAFETY: whoever moves to a stack sets HSPRG0 to the frame at its top, which names the area of the CPU that runs on it;
    // areas live for ever.
    unsafe { &*(*(crate::regs::HSPRG0.read() as *const Frame)).cpu }
}

/// Returns this thread's area, which stands for a CPU in tests.
#[cfg(not(target_os = "none"))]
pub fn this() -> &'static PerCpu {
    std::thread_local! {
        static AREA: &'static PerCpu = Box::leak(Box::new(PerCpu::new(0, 0, 0, 0)));
    }
    AREA.with(|area| *area)
}

/// Sends a doorbell to a CPU (Power ISA 3.0B Book III, 11.3.2: directed hypervisor doorbell), behind all stores before it.
#[inline] // On the path of every interrupt to another CPU.
pub fn ring(token: KickToken) {
    // The other CPU is to see what was stored before.
    sync();
    #[cfg(target_os = "none")]
    // SAFETY: MSGSND of type 5, which the assembler does not know: RB holds the type and the thread.
    unsafe {
        core::arch::asm!(
            ".long 0x7c00019c | {register} << 11", // msgsnd r4
            register = const 4,
            in("r4") 5u64 << 27 | token & 0xf_ffff,
            options(nostack, preserves_flags)
        );
    }
    #[cfg(not(target_os = "none"))]
    crate::regs::fakes::write("MSGSND", token & 0xf_ffff);
}

/// Takes a doorbell back that has arrived here, and is not to interrupt any more.
#[inline]
pub fn clear_doorbell() {
    #[cfg(target_os = "none")]
    // SAFETY: MSGCLR of type 5, which the assembler does not know.
    unsafe {
        core::arch::asm!(
            ".long 0x7c0001dc | {register} << 11", // msgclr r4
            register = const 4,
            in("r4") 5u64 << 27,
            options(nostack, preserves_flags)
        );
    }
    #[cfg(not(target_os = "none"))]
    crate::regs::fakes::write("MSGCLR", 5 << 27);
}

/// Stops this CPU for good.
pub fn halt() -> ! {
    loop {
        #[cfg(target_os = "none")]
        relax();
        #[cfg(not(target_os = "none"))]
        std::thread::park();
    }
}

/// Makes what was stored in `size` bytes at `start` visible to instruction fetches of all CPUs (Book II, 4.3).
pub fn synchronize_code(start: u64, size: u64) {
    #[cfg(target_os = "none")]
    {
        const LINE: u64 = 128;
        let first = start & !(LINE - 1);
        for line in (first..start + size).step_by(LINE as usize) {
            // SAFETY: writes a cached line to memory; memory is not changed.
            unsafe { core::arch::asm!("dcbst 0, {}", in(reg) line, options(nostack, preserves_flags)) };
        }
        sync();
        for line in (first..start + size).step_by(LINE as usize) {
            // SAFETY: forgets a cached line of code.
            unsafe { core::arch::asm!("icbi 0, {}", in(reg) line, options(nostack, preserves_flags)) };
        }
        sync();
    }
    #[cfg(not(target_os = "none"))]
    let _ = (start, size);
    isync();
}
