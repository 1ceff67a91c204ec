// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What guests are told, and what they may write.

use super::Decision;
use super::cpu::{Cpu, eax21, ebx8, ecx21, spec_ctrl};
use crate::state::State;

/// Bits of CPUID that are true on a CPU, or on several; more bits are better news.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// Leaf 8000_0008 EBX.
    pub extended_8_ebx: u32,
    /// Leaf 8000_0021 EAX.
    pub extended_21_eax: u32,
    /// Leaf 8000_0021 ECX.
    pub extended_21_ecx: u32,
}

/// What is true of a guest's CPU because it is of the physical one.
const TRUE_8: u32 = ebx8::SSB_NO | ebx8::BTC_NO | ebx8::IBPB_RET;
/// What needs SPEC_CTRL.
const BY_SPEC_CTRL: u32 = ebx8::IBRS
    | ebx8::STIBP
    | ebx8::IBRS_ALWAYS
    | ebx8::STIBP_ALWAYS
    | ebx8::IBRS_PREFERRED
    | ebx8::IBRS_SAME_MODE
    | ebx8::SSBD
    | ebx8::PSFD;
/// Without BP_CFG, which is the hypervisor's, and the larger return stack, which nobody asks the CPU for.
const TRUE_21: u32 = eax21::LFENCE
    | eax21::VERW_CLEAR
    | eax21::AUTO_IBRS
    | eax21::SBPB
    | eax21::IBPB_BRTYPE
    | eax21::SRSO_NO
    | eax21::SRSO_USER_KERNEL_NO;

impl Offer {
    /// What holds on no CPU at all: each makes it less, or not.
    pub const BEST: Self = Self { extended_8_ebx: !0, extended_21_eax: !0, extended_21_ecx: !0 };

    /// What holds on a CPU with its decision.
    pub fn of(cpu: &Cpu, decision: &Decision) -> Self {
        let mut ebx = cpu.extended_8_ebx & TRUE_8;
        if cpu.has_barrier() {
            ebx |= ebx8::IBPB;
        }
        if decision.exit.switch || cpu.has_spec_ctrl() && cpu.switches_spec_ctrl() {
            ebx |= cpu.extended_8_ebx & BY_SPEC_CTRL;
        }
        // Stopped for guests, too.
        if decision.bypass == State::Mitigated {
            ebx |= ebx8::SSB_NO;
        }
        let mut eax = cpu.extended_21_eax & TRUE_21;
        if decision.once.serialize {
            eax |= eax21::LFENCE;
        }
        let both = ecx21::TSA_SQ_NO | ecx21::TSA_L1_NO;
        Self { extended_8_ebx: ebx, extended_21_eax: eax, extended_21_ecx: cpu.extended_21_ecx & both }
    }

    /// What holds on both of two CPUs.
    #[must_use = "neither changes"]
    pub const fn on_both(self, other: Self) -> Self {
        Self {
            extended_8_ebx: self.extended_8_ebx & other.extended_8_ebx,
            extended_21_eax: self.extended_21_eax & other.extended_21_eax,
            extended_21_ecx: self.extended_21_ecx & other.extended_21_ecx,
        }
    }

    /// The bits of SPEC_CTRL that a guest may set; zero if it has none.
    pub const fn spec_ctrl(&self) -> u64 {
        const BITS: [(u32, u64); 4] = [
            (ebx8::IBRS, spec_ctrl::IBRS),
            (ebx8::STIBP, spec_ctrl::STIBP),
            (ebx8::SSBD, spec_ctrl::SSBD),
            (ebx8::PSFD, spec_ctrl::PSFD),
        ];
        let mut mask = 0;
        let mut at = 0;
        while at < BITS.len() {
            if self.extended_8_ebx & BITS[at].0 != 0 {
                mask |= BITS[at].1;
            }
            at += 1;
        }
        mask
    }

    /// The bits of PRED_CMD that a guest may set: IBPB, and the barrier that keeps branch types.
    pub const fn pred_cmd(&self) -> u64 {
        let barrier = (self.extended_8_ebx & ebx8::IBPB != 0) as u64;
        let short = (self.extended_21_eax & eax21::SBPB != 0) as u64;
        barrier | short << 7
    }

    /// Whether a guest may switch Automatic IBRS on.
    pub const fn auto_ibrs(&self) -> bool {
        self.extended_21_eax & eax21::AUTO_IBRS != 0
    }
}
