// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a guest leaves in the CPU that no special-purpose register holds, and that another one could look at. None of it is
//! needed by a radix guest, so it is not moved: it is forgotten.

use super::demand;
use crate::cpu;

/// Entries of the segment lookaside buffer that software writes where processes have tables of segments or radix trees (Power
/// ISA 3.0B Book III, 5.7.8.1).
const BOLTED: u64 = 4;
/// Those of an emulator, which lets guests write all.
const ALL: u64 = 32;

/// Forgets what the one before has left. `same_partition`: it was a vCPU of the same VM, which may know its segments.
#[inline]
pub(crate) fn forget(same_partition: bool) {
    let enforced = demand::is_enforced();
    if cpu::is_isa_3_1() {
        end_copy();
    }
    if !enforced {
        // Where HFSCR is minded no guest reaches the buffer of branches: the bit for it is never set.
        clear_branches();
    }
    if !same_partition {
        clear_segments(if enforced { BOLTED } else { ALL });
    }
}

/// Forgets the block that COPY has read, so that PASTE of another guest does not write it (Power ISA 3.1 Book II, 4.4).
fn end_copy() {
    #[cfg(target_os = "none")]
    // SAFETY: CP_ABORT, which the assembler does not know for this CPU. The hypervisor copies nothing this way.
    unsafe {
        core::arch::asm!(".long 0x7c00068c", options(nostack, preserves_flags));
    }
    #[cfg(not(target_os = "none"))]
    crate::cpu::regs::fakes::write("CP_ABORT", 0);
}

/// Clears the buffer of branches that were taken (Power ISA 3.0B Book II, chapter 7).
fn clear_branches() {
    #[cfg(target_os = "none")]
    // SAFETY: CLRBHRB, which the assembler does not know for this CPU. The hypervisor's branches are not in it.
    unsafe {
        core::arch::asm!(".long 0x7c00035c", options(nostack, preserves_flags));
    }
    #[cfg(not(target_os = "none"))]
    crate::cpu::regs::fakes::write("CLRBHRB", 0);
}

/// Clears entries of the segment lookaside buffer.
fn clear_segments(count: u64) {
    for entry in 0..count {
        #[cfg(target_os = "none")]
        // SAFETY: SLBMTE of an entry that is not valid: nothing is translated by it, and the hypervisor is in real mode.
        unsafe {
            core::arch::asm!(
                "slbmte {nothing}, {entry}", nothing = in(reg) 0u64, entry = in(reg) entry,
                options(nostack, preserves_flags)
            );
        }
        #[cfg(not(target_os = "none"))]
        crate::cpu::regs::fakes::write("SLBMTE", entry);
    }
}
