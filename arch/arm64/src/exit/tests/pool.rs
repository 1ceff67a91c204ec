// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Touches of memory whose blocks come from a pool.

use std::slice;
use std::sync::Arc;

use turnstile_arch_common::heap::Heap;
use turnstile_arch_common::pooled::{Pool, Pooled, Share};
use turnstile_machine::map::IPA_BITS;
use turnstile_paging::{BLOCK, PageTable, PhysAddr, Stage2, Stage2Attributes};
use turnstile_vgic::Model;

use super::machine::{parts_of, vm_with};
use super::*;
use crate::exit::mmio;
use crate::memory::demand::Later;
use crate::state::pmu::Kind;

/// Where the RAM of the VM begins, which has this size.
const RAM: u64 = 0x4000_0000;
const SIZE: u64 = 64 << 20;
/// ISS: a load that says what it loads, a load that does not, and a walk of the guest's tables, each with a translation fault.
const FAULTS: [u32; 3] = [1 << 24 | 2 << 22 | 0x06, 0x06, 1 << 7 | 0x06];

#[test]
fn a_touch_takes_a_block_and_waits_for_one_if_there_is_none() {
    let (_, mut frame) = machine(1, false);
    let memory = vec![0xee_u8; 4 * BLOCK as usize].leak();
    let host = (memory.as_ptr() as u64).next_multiple_of(BLOCK);
    let pool: &Pool = Box::leak(Box::new(Pool::new(host, BLOCK, 3)));
    let mut table = PageTable::new(Stage2::new(IPA_BITS).unwrap(), &mut Heap).unwrap();
    table.map_on_demand(&mut Heap, RAM, PhysAddr(0), SIZE, Stage2Attributes::RAM).unwrap();
    let vm = vm_with(parts_of(1, Model::Gicv3, 1, Kind::Off, false, true));
    let share = Share::new(pool, Box::leak(Box::default()));
    let pooled = Arc::new(Pooled::new(table.blocks(), share, RAM + SIZE));
    vm.prepare(0, table.root().0, Later::Pooled(pooled));
    let vcpu = vm.vcpus()[0];
    let mut abort = |address: u64, iss| {
        fakes::set("HPFAR_EL2", address >> 12 << 4);
        fakes::set("FAR_EL2", address);
        fakes::take_log();
        // SAFETY: the test has one thread.
        let owned = unsafe { vcpu.owned() };
        match iss {
            Some(iss) => mmio::data_abort::<Gicv3>(&mut frame, vcpu, owned, crate::vm::monitor(), iss),
            None => mmio::instruction_abort(vcpu, 0x06),
        }
        let writes = |access: &Access| matches!(access, Access::Write(..));
        // What it writes: an exception, or the next instruction.
        fakes::take_log().iter().any(writes)
    };
    for (index, iss) in FAULTS.into_iter().enumerate() {
        let address = RAM + index as u64 * BLOCK + 0x128;
        assert!(!abort(address, Some(iss)), "the guest does again what it did");
        assert!(table.translate(&Heap, address).is_some());
    }
    for iss in FAULTS.into_iter().map(Some).chain([None]) {
        assert!(!abort(RAM + 7 * BLOCK, iss), "nor does it hear of an empty pool");
    }
    assert_eq!(pool.free(), 0);
    assert!(abort(RAM + SIZE, Some(FAULTS[0])), "where no memory is");
    assert_eq!(vm.give_back(slice::from_ref(&(RAM..RAM + BLOCK))), 1);
    assert!(!abort(RAM + 7 * BLOCK, None));
    assert!(table.translate(&Heap, RAM + 7 * BLOCK).is_some(), "a block that somebody gives back");
}
