// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory that comes with its first touch.

use turnstile_arch_common::heap::Heap;
use turnstile_paging::{BLOCK, Nested, NestedAttributes, PageTable, PhysAddr};

use super::*;
use crate::cpu::regs::fakes::Access;

#[test]
fn a_first_touch_maps_its_block_by_a_light_exit() {
    const WRITE: u64 = 1 << 1 | 1 << 2;
    let memory = vec![0xee_u8; 5 * BLOCK as usize].leak();
    let host = (memory.as_ptr() as u64).next_multiple_of(BLOCK);
    let mut table = PageTable::new(Nested::new(true, 48), &mut Heap).unwrap();
    let size = 4 * BLOCK;
    table.map_on_demand(&mut Heap, 0, PhysAddr(host), size, NestedAttributes::RAM).unwrap();
    let piece = Piece { guest: 0, size, host };
    let (_, mut frame, mut vmcb) =
        machine_of(GuestRam::new([piece].into_iter()).on_demand(table.blocks()), 0, &[]);
    // A light exit does not fetch code that may reach into the next page: the test has no memory to fetch from.
    vmcb.set_rip(0xfff);
    let mut touch = |info, address| {
        vmcb.set_exit_info([info, address]);
        let before = bytes(&vmcb);
        let code = handle(&mut frame, &mut vmcb, code::NESTED_PAGE_FAULT);
        assert_eq!(changes(&before, &vmcb), [0_usize; 0], "the guest does again what it did");
        let log = fakes::take_log();
        assert!(log.iter().all(|access| *access == Access::Read("APIC")), "{log:?}");
        code
    };
    let at = |address| table.translate(&Heap, address).map(|found| found.address.0);
    // SAFETY: memory of the test.
    let byte = |offset: u64| unsafe { ((host + offset) as *const u8).read_volatile() };
    // An interrupt comes first: it is taken after a slice.
    fakes::set("APIC", 1);
    assert_eq!(touch(WRITE, BLOCK + 0x123), 0);
    assert_eq!((at(BLOCK), byte(BLOCK), byte(2 * BLOCK - 1)), (None, 0, 0xee));
    fakes::set("APIC", 0);
    assert_eq!(touch(WRITE, BLOCK + 0x123), 0);
    assert!((BLOCK..2 * BLOCK).all(|offset| byte(offset) == 0));
    assert_eq!(touch(WRITE, BLOCK + 0x123), 0, "another vCPU was faster");
    assert_eq!(touch(1 | WRITE, BLOCK), Code::FULL, "what is there and does not allow it is no first touch");
    assert_eq!(touch(WRITE, size), Code::FULL, "no RAM");
    assert_eq!(at(BLOCK + 8), Some(host + BLOCK + 8));
    assert_eq!((at(0), at(2 * BLOCK)), (None, None));
}
