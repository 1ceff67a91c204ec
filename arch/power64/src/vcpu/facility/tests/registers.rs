// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All registers of a guest, one by one.

use super::*;
use crate::state::registers::{Branches, Common, Emulated, Monitor, Newer, NewerEmulated, NewerMonitor};

/// The groups of registers that a guest with all facilities has.
fn all_registers() -> impl Iterator<Item = &'static str> {
    let transactions = if demand::is_enforced() { &[] } else { Transactions::REGISTERS };
    let groups = [
        Common::REGISTERS,
        Newer::REGISTERS,
        Emulated::REGISTERS,
        NewerEmulated::REGISTERS,
        Monitor::REGISTERS,
        NewerMonitor::REGISTERS,
        Branches::REGISTERS,
        transactions,
    ];
    groups.into_iter().flatten().map(|(_, name)| *name)
}

/// What a guest finds in a register of this name, and under which it is written.
fn names(register: &'static str) -> [&'static str; 2] {
    if register == "RunLatch" { ["CTRL", "CTRLW"] } else { [register; 2] }
}

/// What the guest would find in each register now.
fn found() -> Vec<(&'static str, u64)> {
    // The two are one.
    fakes::set("CTRL", fakes::get("CTRLW") & 1);
    all_registers().map(|register| (register, fakes::get(names(register)[0]))).collect()
}

#[test]
fn every_register_is_the_vcpus_own_and_begins_as_after_a_reset() {
    every_register_is_the_vcpus_own(true);
}

#[test]
fn every_register_is_the_vcpus_own_where_nothing_is_kept_from_guests() {
    every_register_is_the_vcpus_own(false);
}

/// `enforced`: the CPU minds HFSCR, and a guest has to ask.
fn every_register_is_the_vcpus_own(enforced: bool) {
    let vcpus = [vcpus(1)[0], vm(5, Presentation::Xics)[0]];
    set_enforced(enforced);
    vcpus.iter().for_each(|vcpu| crate::vcpu::facility::reset(vcpu));
    let facilities = |vcpu| assert!(!enforced || [3, 7].into_iter().all(|number| demand(vcpu, number)));
    load(vcpus[1]);
    facilities(vcpus[1]);
    let reset_state = found();
    load(vcpus[0]);
    facilities(vcpus[0]);
    for (value, register) in (0x1000..).zip(all_registers()) {
        for name in names(register) {
            fakes::set(name, 2 * value);
        }
    }
    let mine = found();
    assert!(mine.iter().zip(&reset_state).all(|(mine, other)| mine.1 != other.1));
    load(vcpus[1]);
    assert_eq!(found(), reset_state, "nothing of another vCPU's");
    load(vcpus[0]);
    // The hypervisor's choice, which no guest changes.
    let but_key = |all: Vec<_>| all.into_iter().filter(|(name, _)| *name != "HASHPKEYR").collect::<Vec<_>>();
    assert_eq!(but_key(found()), but_key(mine), "its own");
    crate::vcpu::facility::reset(vcpus[0]);
    facilities(vcpus[0]);
    assert_eq!(found(), reset_state, "nothing of the life before");
}

/// Groups that most guests leave alone are not moved when all registers are as after a reset: each one of them counts.
#[test]
fn one_register_alone_is_the_vcpus_own_too() {
    let vcpus = [vcpus(1)[0], vm(5, Presentation::Xics)[0]];
    set_enforced(false);
    vcpus.iter().for_each(|vcpu| crate::vcpu::facility::reset(vcpu));
    load(vcpus[1]);
    let reset_state = found();
    for register in all_registers().filter(|register| *register != "HASHPKEYR") {
        load(vcpus[0]);
        names(register).into_iter().for_each(|name| fakes::set(name, 0x2000));
        let mine = found();
        load(vcpus[1]);
        assert_eq!(found(), reset_state, "{register} of another vCPU's");
        load(vcpus[0]);
        assert_eq!(found(), mine, "its own {register}");
        crate::vcpu::facility::reset(vcpus[0]);
        assert_eq!(found(), reset_state, "{register} of the life before");
    }
}

#[test]
fn what_a_cpu_does_not_have_is_not_accessed() {
    fakes::reset();
    assert_eq!(Newer::find(), 0);
    fakes::set("has DEXCR", 1);
    let present = Newer::find();
    assert_eq!(present, 1 << 2);
    let mut registers = Newer { tidr: 1, ..Newer::default() };
    registers.save_some(present);
    // SAFETY: nobody runs here.
    unsafe { registers.load_some(None, present) };
    assert_eq!(fakes::take_log(), [Access::Read("DEXCR"), Access::Write("DEXCR", 0)]);
}
