// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A guest's CPU interface: what of it goes with its vCPU, and how the guest reaches it.

use crate::cpu::{isb, regs};

/// ICC_SRE_EL2: the system register interface, no bypass, and EL1 may look at its own ICC_SRE_EL1.
pub(super) const SRE_EL2: u64 = 0xf;
/// ICC_SRE_EL2 without Enable, which EL1's accesses to ICC_SRE_EL1 need: SRE, and no bypass.
const SRE_EL2_TRAPPED: u64 = 7;

/// A guest's CPU interface while its vCPU is in no CPU: priority mask, binary points and enables as `VMCR` has them,
/// and active priorities, in each register of which there are up to four those of Group 0 and 1; how the guest reaches it, where it can choose (`ICC_SRE_EL1`). The default is
/// its reset state.
#[derive(Clone, Copy, Debug)]
#[repr(C)] // Pairs are stored, and loaded, with one instruction.
pub struct InterfaceState {
    pub(super) sre: u64,
    pub(super) vmcr: u64,
    pub(super) active: [[u64; 2]; 4],
}

impl Default for InterfaceState {
    fn default() -> Self {
        Self { sre: SRE_RESET, vmcr: 0, active: [[0; 2]; 4] }
    }
}

/// ICC_SRE_EL1 of a reset vCPU: system registers, no bypass.
pub const SRE_RESET: u64 = 7;

/// Makes the guest's interface work by system registers, or in legacy operation, where the guest cannot change that.
pub fn use_system_registers(on: bool) {
    let (el1, el2) = if on { (SRE_RESET, SRE_EL2) } else { (0, SRE_EL2_TRAPPED) };
    // SAFETY: state of the guest's interface only.
    unsafe {
        regs::ICC_SRE_EL1.write(el1);
        regs::ICC_SRE_EL2.write(el2);
    }
    isb();
}
