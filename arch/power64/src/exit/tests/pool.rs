// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory whose blocks come from a pool, and go back.

use std::slice;

use turnstile_paging::BLOCK;

use super::*;
use crate::memory::kept;
use crate::memory::tests::{BigEndian, Machine, pooled};

/// A vCPU of a VM that runs in such memory, of eight blocks.
fn begin_in(number: u8, count: u64, presentation: Presentation) -> (&'static Vcpu, Frame, Machine) {
    let (_, mut frame) = resident_vcpu();
    let vcpu = crate::vcpu::facility::tests::vm(number, presentation)[0];
    let machine = pooled(count, 8);
    vcpu.vm.prepare(0, machine.ram.clone(), BootState { pc: 0x100, r3: 0, little_endian: true });
    vcpu.vm.lifecycle.start();
    assert!(vcpu.vm.processors.take_start(0).is_some());
    crate::vcpu::facility::load(vcpu);
    frame.vcpu = vcpu;
    fakes::take_log();
    (vcpu, frame, machine)
}

/// Takes the blocks that are left.
fn drain(machine: &Machine) -> Vec<u64> {
    core::iter::from_fn(|| machine.pool.take()).collect()
}

#[test]
fn an_empty_pool_lets_the_guest_touch_again() {
    let (_, mut frame, machine) = begin_in(11, 1, Presentation::Xics);
    let mut touch = |address: u64| {
        fakes::set("ASDR", address);
        fakes::set("HDSISR", 1 << 30);
        entry::light(&mut frame, vector::HYPERVISOR_DATA_STORAGE)
    };
    assert_eq!([touch(BLOCK), touch(BLOCK), touch(3 * BLOCK)], [0, 0, 0]);
    let at = |address| machine.table.translate(&BigEndian, address).map(|found| found.address.0);
    assert_eq!((at(BLOCK + 8), at(3 * BLOCK)), (Some(machine.host + 8), None));
    assert_eq!(touch(8 * BLOCK), Code::FULL, "no memory");
}

#[test]
fn bytes_in_several_blocks_are_read_and_written_wherever_those_are() {
    let (vcpu, _, machine) = begin_in(12, 3, Presentation::Xics);
    for number in [5, 4, 6] {
        vcpu.vm.life().ram.host(number * BLOCK, 1).unwrap();
    }
    let (mut found, bytes) = ([0; 16], core::array::from_fn::<u8, 16, _>(|at| at as u8));
    assert!(vcpu.vm.write(5 * BLOCK - 6, &bytes) && vcpu.vm.read(5 * BLOCK - 6, &mut found));
    assert_eq!(found, bytes);
    // SAFETY: memory of the test.
    assert_eq!(unsafe { (machine.host as *const [u8; 10]).read() }, bytes[6..]);
    assert!(!vcpu.vm.write(7 * BLOCK - 8, &bytes), "one of them has no memory");
    assert!(vcpu.vm.read(7 * BLOCK - 8, &mut found[..8]) && found[..8] == [0; 8], "so nothing is written");
    assert!(!vcpu.vm.write(8 * BLOCK - 8, &bytes));
}

#[test]
fn a_call_that_names_memory_without_a_block_is_made_again() {
    let (vcpu, mut frame, machine) = begin_in(13, 1, Presentation::Xive);
    let left = drain(&machine);
    frame.vector = vector::CALL;
    let mut call = |call: Hcall, arguments: [u64; 7]| {
        frame.set_gpr(3, call.number().unwrap());
        frame.set_arguments(arguments);
        fakes::set("SRR0", 0x1004);
        assert_eq!(full(&mut frame, Code::FULL), Entry::Some);
        let registers = core::array::from_fn::<u64, 8, _>(|at| frame.gpr(3 + at));
        (frame.pc, registers)
    };
    const PLACE: u64 = 3 * BLOCK;
    let calls = [
        (Hcall::PageInit, [1 << 15, PLACE, 9 * BLOCK, 0, 0, 0, 7]),
        (Hcall::PageInit, [1 << 14, PLACE, PLACE, 0, 0, 0, 7]),
        (Hcall::RegisterVpa, [1 << 45, 0, PLACE, 0, 0, 0, 7]),
        (Hcall::Rtas, [PLACE, 0, 0, 0, 0, 0, 7]),
        (Hcall::IntSetQueueConfig, [1, 0, 6, PLACE, 12, 0, 7]),
    ];
    for (number, arguments) in calls {
        let mut as_before = [number.number().unwrap(); 8];
        as_before[1..].copy_from_slice(&arguments);
        assert_eq!(call(number, arguments), (0x1000, as_before), "{number:?}");
    }
    let nowhere = call(Hcall::PageInit, [1 << 15, 9 * BLOCK, 0, 0, 0, 0, 0]);
    assert_eq!((nowhere.0, nowhere.1[0]), (0x1004, -4i64 as u64), "where no memory is");
    assert!(machine.pool.give(left[0]));
    for (number, arguments) in calls {
        assert_eq!(call(number, arguments).0, 0x1004, "{number:?}");
    }
    assert_eq!(vcpu.vm.life().ram.kept_bytes(), BLOCK, "the controller writes there");
}

#[test]
fn blocks_go_back_once_all_cpus_have_forgotten_them() {
    let (vcpu, _, machine) = begin_in(14, 3, Presentation::Xics);
    for number in 1..4 {
        vcpu.vm.life().ram.host(number * BLOCK, 1).unwrap();
    }
    assert!(vcpu.vm.set_word(2 * BLOCK + 4, 640 << 16));
    let registered = crate::exit::calls::register_vpa(vcpu, [1 << 45, 0, 2 * BLOCK, 0, 0, 0, 0]);
    assert_eq!(registered, turnstile_papr::code::Code::SUCCESS);
    fakes::take_log();
    assert_eq!(vcpu.vm.give_back(slice::from_ref(&(BLOCK..4 * BLOCK))), 2);
    assert_eq!(fakes::take_log(), [Access::Write("TLBIE_LPID", vcpu.vm.lpid().into())]);
    assert!(machine.table.translate(&BigEndian, 2 * BLOCK).is_some(), "the area that the vCPU shares stays");
    assert_eq!((machine.pool.free(), vcpu.vm.give_back(slice::from_ref(&(0..u64::MAX)))), (2, 0));
    assert_eq!(fakes::take_log(), [], "nothing has gone");
}

#[test]
fn what_the_controller_may_write_to_stays_when_the_rest_returns() {
    const REFUSED: u64 = -11i64 as u64;
    let (vcpu, _, machine) = begin_in(15, 3, Presentation::Xive);
    vcpu.vm.life().ram.host(BLOCK, 1).unwrap();
    let queue = [1, 0, 6, 2 * BLOCK, 12];
    let placed = vcpu.vm.board.call(&vcpu.vm.life().ram, Hcall::IntSetQueueConfig, &queue).code;
    assert_eq!(placed, turnstile_papr::code::Code::SUCCESS);
    fakes::set("OPAL", REFUSED);
    let before = kept::bytes();
    vcpu.vm.end();
    assert!(kept::is_kept(&machine.ram));
    assert_eq!(kept::bytes(), before + BLOCK, "no more than that");
}
