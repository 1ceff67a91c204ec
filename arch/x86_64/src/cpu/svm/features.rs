// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the SVM of this machine can do (APM vol. 3, E.4.9: CPUID 8000_000A).

use bitflags::bitflags;

use crate::cpu;

/// The CPUID leaf that describes SVM.
const LEAF: u32 = 0x8000_000a;

bitflags! {
    /// The features in EDX of CPUID 8000_000A that the hypervisor makes use of.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Features: u32 {
        /// Nested paging.
        const NESTED_PAGING = 1 << 0;
        /// The address of the next instruction is in the control block after an exit.
        const NEXT_RIP = 1 << 3;
        /// State that is marked clean is not loaded again.
        const CLEAN_BITS = 1 << 5;
        /// TLB_CONTROL flushes one ASID's translations.
        const FLUSH_BY_ASID = 1 << 6;
        /// The bytes of an instruction that faults are in the control block.
        const DECODE_ASSISTS = 1 << 7;
        /// A count lets short sequences of PAUSE pass.
        const PAUSE_FILTER = 1 << 10;
        /// PAUSEs far apart reset the count.
        const PAUSE_FILTER_THRESHOLD = 1 << 12;
        /// VMRUN and #VMEXIT switch SPEC_CTRL; the hypervisor's bits hold for the guest, too.
        const VIRTUAL_SPEC_CTRL = 1 << 20;
    }
}

impl Features {
    /// What this CPU has.
    pub fn of_this_cpu() -> Self {
        Self::from_bits_truncate(cpu::cpuid(LEAF, 0)[3])
    }

    /// How many ASIDs this CPU has, the host's own (zero) included.
    pub fn asids() -> u32 {
        cpu::cpuid(LEAF, 0)[1]
    }
}
