// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stage 2 faults on flash: stores while it is mapped read-only, and all accesses while its chips show something else than
//! their cells.

use super::decode::{Decoded, FAULT, FAULT_TRANSLATION, ISV, S1PTW, fault_address};
use super::inject;
use super::light::skip;
use crate::cpu::{self, regs};
use crate::memory::flash::Access;
use crate::vcpu::frame::Frame;
use crate::vm::{Monitor, Vcpu};

/// ISS.CM: a cache maintenance or address translation instruction.
const CM: u32 = 1 << 8;
const FAULT_PERMISSION: u32 = 0x0c;
/// PAR_EL1.F: the translation failed.
const PAR_F: u64 = 1;
/// The output address of PAR_EL1.
const PAR_PA: u64 = 0x000f_ffff_ffff_f000;

/// Handles a data abort that is about flash; false if it is not, or if no flash can answer it.
#[cold] // No exit that is counted comes here.
#[inline(never)]
pub(super) fn data_abort(frame: &mut Frame, vcpu: &Vcpu, monitor: &dyn Monitor, iss: u32) -> bool {
    if !vcpu.vm.flash.is_there() {
        return false;
    }
    let address = match iss & (FAULT | S1PTW) {
        FAULT_PERMISSION => address_of(regs::FAR_EL2.read()),
        _ => Some(fault_address()),
    };
    // The guest's tables have changed meanwhile: the access finds out what they say now.
    let Some(address) = address else { return true };
    let Some(place) = vcpu.vm.flash.place(address) else { return false };
    if iss & (CM | S1PTW) == CM {
        // Data that are in no cache need no maintenance, and what is written here is cleaned. Instruction caches may hold what
        // was there before, and find nothing by an address that does not translate.
        cpu::ic_ialluis();
        cpu::dsb_ish();
        skip();
        return true;
    }
    if iss & (ISV | S1PTW) != ISV {
        return is_shown_again(vcpu, iss);
    }
    let decoded = Decoded::new(iss);
    let value = decoded.write.then(|| decoded.extend_for_device(frame.get(decoded.register)));
    let Some(read) = monitor.flash(vcpu.vm, Access { place, size: decoded.size, value }) else { return true };
    if !decoded.write {
        frame.set(decoded.register, decoded.extend(read));
    }
    skip();
    true
}

/// Says whether an access found no mapping where flash is mapped now: another vCPU has made its chips show their cells again.
pub(super) fn is_shown_again(vcpu: &Vcpu, iss: u32) -> bool {
    let flash = &vcpu.vm.flash;
    iss & FAULT == FAULT_TRANSLATION
        && flash.place(fault_address()).is_some_and(|place| flash.is_shown(place.bank))
}

/// Returns the intermediate physical address of a virtual one, `None` if the guest's tables have none. HPFAR_EL2 does not
/// have it: it is UNKNOWN after a permission fault of stage 2 that is not about a walk (Arm ARM D24.2.60).
fn address_of(virtual_address: u64) -> Option<u64> {
    let guests = regs::PAR_EL1.read();
    if inject::is_from_el0() {
        cpu::at_s1e0r(virtual_address);
    } else {
        cpu::at_s1e1r(virtual_address);
    }
    // The result is there after a context synchronization (Arm ARM D8.11).
    cpu::isb();
    let result = regs::PAR_EL1.read();
    // SAFETY: what the guest had there; nothing depends on it.
    unsafe { regs::PAR_EL1.write(guests) };
    (result & PAR_F == 0).then_some(result & PAR_PA | virtual_address & 0xfff)
}
