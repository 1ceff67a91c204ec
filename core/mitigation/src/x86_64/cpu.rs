// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPUs: what CPUID says of how they speculate, and what their maker says of their families.
//!
//! Sources: AMD, "Software Techniques for Managing Speculation on AMD Processors", and the bulletins on the CVEs that the
//! module names; APM vol. 3, appendix E.

/// What CPUID says of a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    /// Whether its maker is neither AMD nor Hygon, whose family 18h is a Zen.
    pub foreign: bool,
    /// Its family, with the extension.
    pub family: u32,
    /// Its model, with the extension.
    pub model: u32,
    /// Whether it is said to be that of a virtual machine.
    pub virtualized: bool,
    /// Leaf 7 EDX.
    pub leaf_7_edx: u32,
    /// Leaf 8000_0008 EBX.
    pub extended_8_ebx: u32,
    /// Leaf 8000_000A EDX: the features of SVM.
    pub svm_edx: u32,
    /// Leaf 8000_0021 EAX.
    pub extended_21_eax: u32,
    /// Leaf 8000_0021 ECX.
    pub extended_21_ecx: u32,
}

/// Bits of leaf 8000_0008 EBX.
pub(super) mod ebx8 {
    pub const IBPB: u32 = 1 << 12;
    pub const IBRS: u32 = 1 << 14;
    pub const STIBP: u32 = 1 << 15;
    /// IBRS is best left on.
    pub const IBRS_ALWAYS: u32 = 1 << 16;
    /// STIBP is best left on.
    pub const STIBP_ALWAYS: u32 = 1 << 17;
    /// IBRS is better than what software can do.
    pub const IBRS_PREFERRED: u32 = 1 << 18;
    /// IBRS protects within one mode, too.
    pub const IBRS_SAME_MODE: u32 = 1 << 19;
    pub const SSBD: u32 = 1 << 24;
    /// A hypervisor stops bypass by MSR C001_011F.
    pub const VIRT_SSBD: u32 = 1 << 25;
    pub const SSB_NO: u32 = 1 << 26;
    pub const PSFD: u32 = 1 << 28;
    /// Branch types are not confused.
    pub const BTC_NO: u32 = 1 << 29;
    /// IBPB clears the return stack.
    pub const IBPB_RET: u32 = 1 << 30;
}

/// Bits of leaf 8000_0021 EAX.
pub(super) mod eax21 {
    /// LFENCE always waits for all before it.
    pub const LFENCE: u32 = 1 << 2;
    /// VERW clears what can be sampled.
    pub const VERW_CLEAR: u32 = 1 << 5;
    pub const AUTO_IBRS: u32 = 1 << 8;
    /// The return stack tells guests from the host.
    pub const ERAPS: u32 = 1 << 24;
    /// A barrier that keeps branch types.
    pub const SBPB: u32 = 1 << 27;
    /// IBPB clears branch types.
    pub const IBPB_BRTYPE: u32 = 1 << 28;
    pub const SRSO_NO: u32 = 1 << 29;
    /// User code does not overflow the return stack for its kernel.
    pub const SRSO_USER_KERNEL_NO: u32 = 1 << 30;
    /// BP_CFG has a bit against SRSO between guests and the host.
    pub const SRSO_MSR_FIX: u32 = 1 << 31;
}

/// Bits of leaf 8000_0021 ECX: transient scheduler attacks by the store queue and by the L1 data cache.
pub(super) mod ecx21 {
    pub const TSA_SQ_NO: u32 = 1 << 1;
    pub const TSA_L1_NO: u32 = 1 << 2;
}

/// Bits of leaf 7 EDX, by which other makers, and hypervisors, say the same.
mod edx7 {
    pub const IBRS_IBPB: u32 = 1 << 26;
    pub const SSBD: u32 = 1 << 31;
}

/// SPEC_CTRL is virtualized: leaf 8000_000A EDX.
const VIRTUAL_SPEC_CTRL: u32 = 1 << 20;

/// Bits of SPEC_CTRL (MSR 48h; APM vol. 2, 3.2.9).
pub mod spec_ctrl {
    /// Indirect branches are not steered by what less privileged code has trained.
    pub const IBRS: u64 = 1 << 0;
    /// Nor by the core's other thread.
    pub const STIBP: u64 = 1 << 1;
    /// Loads do not overtake stores.
    pub const SSBD: u64 = 1 << 2;
    /// Stores are not forwarded by prediction.
    pub const PSFD: u64 = 1 << 7;
}

impl Cpu {
    /// Asks CPUID: leaf and subleaf give EAX, EBX, ECX, EDX.
    pub fn read(cpuid: impl Fn(u32, u32) -> [u32; 4]) -> Self {
        const AMD: u32 = u32::from_le_bytes(*b"Auth");
        const HYGON: u32 = u32::from_le_bytes(*b"Hygo");
        let [highest, maker, ..] = cpuid(0, 0);
        let [highest_extended, ..] = cpuid(0x8000_0000, 0);
        let basic = |leaf| if leaf <= highest { cpuid(leaf, 0) } else { [0; 4] };
        let extended = |leaf| if leaf <= highest_extended { cpuid(leaf, 0) } else { [0; 4] };
        let [signature, _, features, _] = basic(1);
        let family = signature >> 8 & 0xf;
        let model = signature >> 4 & 0xf;
        let is_extended = family == 0xf;
        let [eax21, _, ecx21, _] = extended(0x8000_0021);
        Self {
            foreign: maker != AMD && maker != HYGON,
            family: family + if is_extended { signature >> 20 & 0xff } else { 0 },
            model: model | if is_extended { signature >> 12 & 0xf0 } else { 0 },
            virtualized: features >> 31 != 0,
            leaf_7_edx: basic(7)[3],
            extended_8_ebx: extended(0x8000_0008)[1],
            svm_edx: extended(0x8000_000a)[3],
            extended_21_eax: eax21,
            extended_21_ecx: ecx21,
        }
    }

    pub(super) const fn has(&self, ebx8: u32) -> bool {
        self.extended_8_ebx & ebx8 != 0
    }

    pub(super) const fn has_21(&self, eax21: u32) -> bool {
        self.extended_21_eax & eax21 != 0
    }

    /// Whether it is no real one: of the real ones up to family 0Fh, the first with SVM, none had nested paging.
    pub(super) const fn is_emulated(&self) -> bool {
        !self.foreign && self.family < 0x10
    }

    /// Whether it has PRED_CMD.
    pub const fn has_barrier(&self) -> bool {
        self.has(ebx8::IBPB) || self.leaf_7_edx & edx7::IBRS_IBPB != 0
    }

    /// Whether it has SPEC_CTRL.
    pub const fn has_spec_ctrl(&self) -> bool {
        self.has(ebx8::IBRS | ebx8::STIBP | ebx8::SSBD)
            || self.leaf_7_edx & (edx7::IBRS_IBPB | edx7::SSBD) != 0
    }

    /// Whether VMRUN and #VMEXIT switch SPEC_CTRL.
    pub const fn switches_spec_ctrl(&self) -> bool {
        self.svm_edx & VIRTUAL_SPEC_CTRL != 0
    }

    pub(super) const fn has_ssbd(&self) -> bool {
        self.has(ebx8::SSBD) || self.leaf_7_edx & edx7::SSBD != 0
    }

    /// Whether nothing of a guest's is in the return stack behind #VMEXIT: Automatic IBRS clears it.
    pub(super) const fn keeps_return_stack_apart(&self, auto_ibrs: bool) -> bool {
        auto_ibrs || self.has_21(eax21::ERAPS)
    }

    /// Whether it takes branches of one kind for those of another.
    pub(super) const fn confuses_branches(&self) -> bool {
        !self.has(ebx8::BTC_NO) && (self.foreign || matches!(self.family, 0x15..=0x18))
    }

    /// Whether a guest can overflow its return stack by speculation.
    pub(super) const fn overflows(&self) -> bool {
        !self.has_21(eax21::SRSO_NO) && (self.foreign || self.family >= 0x17)
    }

    /// Whether IBPB forgets all that leads to an overflow: with the microcode of Zen 3 and Zen 4 that says so, and before.
    pub(super) const fn barrier_is_whole(&self) -> bool {
        self.has_barrier() && (self.has_21(eax21::IBPB_BRTYPE) || !self.foreign && self.family < 0x19)
    }

    /// Whether its schedulers tell a guest of the hypervisor's data: Zen 3 and Zen 4.
    pub(super) const fn tells_data(&self) -> bool {
        const BOTH: u32 = ecx21::TSA_SQ_NO | ecx21::TSA_L1_NO;
        self.extended_21_ecx & BOTH != BOTH && (self.foreign || self.family == 0x19)
    }

    /// Whether its loads overtake stores where that can be used.
    pub(super) const fn bypasses(&self) -> bool {
        !self.has(ebx8::SSB_NO) && (self.foreign || self.family > 0x12)
    }
}
