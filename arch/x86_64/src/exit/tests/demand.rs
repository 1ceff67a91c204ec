// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory that comes with its first touch.

use turnstile_arch_common::heap::Heap;
use turnstile_paging::{BLOCK, Nested, NestedAttributes, PageTable, PhysAddr};

use super::*;

#[test]
fn a_first_touch_maps_its_block_by_a_light_exit() {
    const HOST: u64 = 0x8_4020_0000;
    const WRITE: u64 = 1 << 1 | 1 << 2;
    let mut table = PageTable::new(Nested::new(true, 40), &mut Heap).unwrap();
    let size = 4 * BLOCK;
    table.map_on_demand(&mut Heap, 0, PhysAddr(HOST), size, NestedAttributes::RAM).unwrap();
    let piece = Piece { guest: 0, size, host: HOST };
    let (_, mut frame, mut vmcb) = machine_of(piece, Some(table.blocks()), 0);
    // A light exit does not fetch code that may reach into the next page: the test has no memory to fetch from.
    vmcb.set_rip(0xfff);
    let mut touch = |info, address| {
        vmcb.set_exit_info([info, address]);
        let before = bytes(&vmcb);
        let code = handle(&mut frame, &mut vmcb, code::NESTED_PAGE_FAULT);
        assert_eq!(changes(&before, &vmcb), [0_usize; 0], "the guest does again what it did");
        assert_eq!(fakes::take_log(), [], "no register of the machine");
        code
    };
    assert_eq!(touch(WRITE, BLOCK + 0x123), 0);
    assert_eq!(touch(WRITE, BLOCK + 0x123), 0, "another vCPU was faster");
    assert_eq!(touch(1 | WRITE, BLOCK), Code::FULL, "what is there and does not allow it is no first touch");
    assert_eq!(touch(WRITE, size), Code::FULL, "no RAM");
    let at = |address| table.translate(&Heap, address).map(|found| found.address.0);
    assert_eq!(at(BLOCK + 8), Some(HOST + BLOCK + 8));
    assert_eq!((at(0), at(2 * BLOCK)), (None, None));
}
