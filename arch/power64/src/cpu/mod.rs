// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Instructions, registers, and the per-CPU area.
//!
//! | file | what |
//! |---|---|
//! | `regs` | special-purpose registers |
//! | `vector` | offsets of interrupt vectors |
//! | `inhibited` | accesses to device registers |
//! | `area` | the ground part of what each physical CPU has for itself, and how the rest is found |
//! | `report` | what an interrupt of the hypervisor itself leaves |

pub mod area;
#[cfg(target_os = "none")]
pub(crate) mod inhibited;
pub mod regs;
pub mod report;
pub(crate) mod vector;

pub use area::{PerCpu, STACK_HEAD, this};
use regs::PVR;
pub use turnstile_arch_common::relax;
use turnstile_vm::attention::KickToken;

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

/// Sends a doorbell to a CPU (Power ISA 3.0B Book III, 11.3.2: directed hypervisor doorbell), behind all stores before it.
#[inline] // On the path of every interrupt to another CPU.
pub fn ring(token: KickToken) {
    // The other CPU is to see what was stored before.
    sync();
    ring_behind_post(token);
}

/// As [`ring`], behind a post that has ordered its stores itself (`Attention::post`: the fence there is SYNC, and what follows
/// it is a load).
#[inline(always)] // As above, where no function is called.
pub fn ring_behind_post(token: KickToken) {
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
    regs::fakes::write("MSGSND", token & 0xf_ffff);
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
    regs::fakes::write("MSGCLR", 5 << 27);
}

/// Says whether the CPU implements Power ISA 3.1: POWER10 and later do.
pub fn is_isa_3_1() -> bool {
    /// PVR's upper half.
    const POWER10: u64 = 0x80;
    PVR.read() >> 16 >= POWER10
}

/// A random number, from the CPU's own generator (Power ISA 3.0B Book I, 3.3.9); `None` if it has none at present.
pub fn random() -> Option<u64> {
    /// What DARN gives when it has nothing; it may be asked again.
    const NOTHING: u64 = u64::MAX;
    const PATIENCE: u32 = 10;
    let draw = || {
        let number: u64;
        #[cfg(target_os = "none")]
        // SAFETY: changes nothing. DARN with L=1: a conditioned number of 64 bits.
        unsafe {
            core::arch::asm!("darn {}, 1", out(reg) number, options(nomem, nostack, preserves_flags));
        }
        #[cfg(not(target_os = "none"))]
        {
            number = regs::fakes::read("DARN");
        }
        number
    };
    (0..PATIENCE).map(|_| draw()).find(|number| *number != NOTHING)
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

/// Makes what was stored before visible to instruction fetches of all CPUs (Book II, 4.3). The instruction caches of POWER9 and
/// POWER10 take note of stores by themselves; one ICBI, of any line, makes CPUs drop what they have fetched ahead.
pub fn synchronize_code() {
    sync();
    #[cfg(target_os = "none")]
    // SAFETY: forgets what was fetched; memory is not changed.
    unsafe {
        core::arch::asm!("icbi 0, {}", in(reg) 0u64, options(nostack, preserves_flags));
    }
    sync();
    isync();
}
