// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Data aborts that are about flash, or could be.

use turnstile_vgic::Model;

use super::machine::{parts_of, vm_with};
use super::*;
use crate::exit::mmio;
use crate::state::pmu::Kind;
use crate::vm::{Vm, VmParts};

/// ISS of a store, and of cache maintenance; a translation fault, and a permission fault.
const STORE: u32 = 1 << 24 | 2 << 22 | 1 << 6;
const MAINTENANCE: u32 = 1 << 8 | 1 << 6;
const TRANSLATION: u32 = 0x06;
const PERMISSION: u32 = 0x0e;

/// Takes a data abort at an intermediate physical address below 4 KiB; returns what it touches.
fn abort(vm: &'static Vm, frame: &mut Frame, address: u64, iss: u32) -> Vec<Access> {
    fakes::set("HPFAR_EL2", 0);
    fakes::set("FAR_EL2", address);
    fakes::take_log();
    fakes::take_instructions();
    // SAFETY: the test has one thread.
    let owned = unsafe { vm.vcpus()[0].owned() };
    mmio::data_abort::<Gicv3>(frame, vm.vcpus()[0], owned, crate::vm::monitor(), iss);
    fakes::take_log()
}

/// A guest has written code by commands, and makes it coherent before the chips show it.
#[test]
fn maintenance_of_flash_that_is_hidden_reaches_instruction_caches() {
    let (vm, mut frame) = machine(1, false);
    abort(vm, &mut frame, 0x40, MAINTENANCE | TRANSLATION);
    assert_eq!(fakes::take_instructions(), ["ic ialluis", "dsb ish"]);
    assert_eq!(fakes::get("ELR_EL2"), 0x4000_0004, "it is done");
}

#[test]
fn the_guests_tables_are_asked_where_there_is_flash() {
    let asks = |log: &[Access]| log.contains(&Access::Read("PAR_EL1"));
    let (vm, mut frame) = machine(1, false);
    assert!(asks(&abort(vm, &mut frame, 0x40, STORE | PERMISSION)));
    let vm = vm_with(VmParts { flash: 0, ..parts_of(0, Model::Gicv3, 1, Kind::Off, false, false) });
    fakes::set("TPIDR_EL2", core::ptr::from_ref(vm.vcpus()[0].cpu) as u64);
    let mut frame = Frame::new(vm.vcpus()[0], light::aborts(vm.vcpus()[0]));
    assert!(!asks(&abort(vm, &mut frame, 0x40, STORE | PERMISSION)));
}
