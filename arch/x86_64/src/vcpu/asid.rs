// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The address space identifiers of vCPUs.

use crate::cpu;
use crate::cpu::svm::Vmcb;
use crate::state::asid;
use crate::vm::Vcpu;

/// Gives a vCPU that becomes resident an identifier of this CPU, unless it has one.
#[inline] // Of each switch.
pub fn load(vcpu: &Vcpu, vmcb: &mut Vmcb) {
    vcpu.owned(|owned| asid::load(cpu::this(), &mut owned.asid, vmcb));
}

/// Makes this CPU forget the translations of the resident vCPU.
pub fn renew(vcpu: &Vcpu, vmcb: &mut Vmcb) {
    vcpu.owned(|owned| asid::renew(&mut owned.asid, vmcb));
}
