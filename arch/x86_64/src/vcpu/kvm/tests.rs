// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The interface as a guest sees it: registers, and what they leave in its memory.

use std::string::String;

use turnstile_pvclock::{FLUSH_TLB, PREEMPTED};
use turnstile_vapic::Fault;
use turnstile_vm::lifecycle::OnCrash;
use turnstile_x86policy::features::kvm as feature;

use super::{CLOCK, OLD_CLOCK, POLL_CONTROL, PV_EOI, STEAL_TIME, WALL_CLOCK, load, put, read, write};
use crate::cpu;
use crate::cpu::regs::fakes;
use crate::cpu::svm::Vmcb;
use crate::memory::{GuestRam, Piece};
use crate::state::start::BootState;
use crate::vm::Vcpu;
use crate::vm::ports::Ports;
use crate::vm::{Vm, VmParts};

const ALL: u32 = feature::CLOCKSOURCE
    | feature::CLOCKSOURCE2
    | feature::STEAL_TIME
    | feature::PV_EOI
    | feature::PV_TLB_FLUSH
    | feature::POLL_CONTROL;
const SIZE: usize = 0x4000;
/// What the RAM is full of at first.
const FILL: u8 = 0xa5;

/// RAM of a guest, from its address 0 on, aligned as pages are.
#[repr(align(4096))]
struct Ram([u8; SIZE]);

struct Guest {
    ram: *mut Ram,
    vcpu: &'static Vcpu,
    vmcb: Vmcb,
}

impl Guest {
    fn new(kvm: Option<u32>) -> Self {
        fakes::reset();
        fakes::set("TSC", 1_000_000);
        let ram = Box::into_raw(Box::new(Ram([FILL; SIZE])));
        let vm: &'static Vm = Box::leak(Box::new(Vm::new(VmParts {
            id: 0,
            name: String::from("test"),
            on_crash: OnCrash::Stop,
            statistics: false,
            x2apic: true,
            kvm,
            ports: &const { Ports::of(&[]) },
            vcpus: 1,
        })));
        let piece = Piece { guest: 0, size: SIZE as u64, host: ram as u64 };
        vm.prepare(0, GuestRam::new([piece].into_iter()), BootState::default());
        let mut vmcb = Vmcb::new();
        vmcb.set_tsc_offset(vm.life().tsc_offset());
        Self { ram, vcpu: Box::leak(Box::new(Vcpu::new(vm, 0, cpu::this(), None))), vmcb }
    }

    fn write(&mut self, number: u32, value: u64) -> Result<(), Fault> {
        write(self.vcpu, &mut self.vmcb, number, value)
    }

    fn bytes(&self, at: usize, size: usize) -> Vec<u8> {
        // SAFETY: the test's buffer, which nobody else uses now.
        unsafe { (&(*self.ram).0)[at..at + size].to_vec() }
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.bytes(at, 4).try_into().unwrap())
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.bytes(at, 8).try_into().unwrap())
    }

    fn set_u32(&mut self, at: usize, value: u32) {
        // SAFETY: as for `bytes`.
        unsafe { (&mut (*self.ram).0)[at..at + 4].copy_from_slice(&value.to_le_bytes()) };
    }
}

#[test]
fn what_is_not_offered_is_not_there() {
    for number in [OLD_CLOCK, CLOCK, WALL_CLOCK, STEAL_TIME, PV_EOI, POLL_CONTROL, 0x4b56_4d02, 0x4b56_4d06] {
        for kvm in [None, Some(0)] {
            let mut guest = Guest::new(kvm);
            assert_eq!(read(guest.vcpu, number), Err(Fault), "{number:#x}");
            assert_eq!(guest.write(number, 0x1001), Err(Fault), "{number:#x}");
            assert_eq!(guest.bytes(0, SIZE), vec![FILL; SIZE]);
        }
    }
    let mut guest = Guest::new(Some(ALL));
    assert_eq!(guest.write(0x4b56_4d02, 1), Err(Fault), "asynchronous page faults");
}

#[test]
fn the_clock_counts_from_the_beginning_of_the_vm() {
    let mut guest = Guest::new(Some(ALL));
    fakes::set("TSC", 5_000_000);
    assert_eq!(guest.write(CLOCK, 0x1041), Ok(()));
    assert_eq!(read(guest.vcpu, OLD_CLOCK), Ok(0x1041));
    assert_eq!((guest.u64(0x1048), guest.u64(0x1050)), (0, 0));
    assert_eq!(guest.u32(0x1040) % 2, 0);
    // Its counter set to something else: the clock goes on from where it is.
    guest.vmcb.set_tsc_offset(77u64.wrapping_sub(5_000_000));
    super::adjust(guest.vcpu, &guest.vmcb);
    assert_eq!((guest.u64(0x1048), guest.u64(0x1050)), (77, 4_000_000));
    // Off: nothing is written any more.
    assert_eq!(guest.write(CLOCK, 0x1040), Ok(()));
    let before = guest.bytes(0, SIZE);
    super::adjust(guest.vcpu, &guest.vmcb);
    assert_eq!(guest.bytes(0, SIZE), before);
}

#[test]
fn hostile_addresses_are_faults_and_change_nothing() {
    let mut guest = Guest::new(Some(ALL));
    assert_eq!(guest.write(STEAL_TIME, 0x1001), Ok(()));
    let before = guest.bytes(0, SIZE);
    let end = SIZE as u64;
    let wrong = [
        (CLOCK, end - 28 + 1),
        (CLOCK, end | 1),
        (CLOCK, 0x1003),
        (CLOCK, 0xfee0_0001),
        (CLOCK, u64::MAX),
        (STEAL_TIME, end | 1),
        (STEAL_TIME, 0x1021),
        (STEAL_TIME, 1 << 63 | 1),
        (WALL_CLOCK, end - 8),
        (WALL_CLOCK, 0x1002),
        (WALL_CLOCK, u64::MAX),
        (PV_EOI, end | 1),
        (PV_EOI, 0x1003),
        (POLL_CONTROL, 2),
    ];
    for (number, value) in wrong {
        assert_eq!(guest.write(number, value), Err(Fault), "{number:#x} {value:#x}");
        assert_eq!(guest.bytes(0, SIZE), before, "{number:#x} {value:#x}");
    }
    assert_eq!(read(guest.vcpu, STEAL_TIME), Ok(0x1001), "what was right stays");
    assert_eq!(guest.write(CLOCK, end - 32 + 1), Ok(()), "the last bytes of RAM");
}

#[test]
fn a_wall_clock_is_written_where_it_is_asked_for() {
    let mut guest = Guest::new(Some(ALL));
    guest.set_u32(0x2000, 7);
    fakes::set("TSC", 1_000_000 + 3_000_000_000);
    assert_eq!(guest.write(WALL_CLOCK, 0x2000), Ok(()));
    assert_eq!(guest.u32(0x2000), 8);
    assert_eq!((guest.u32(0x2004), guest.u32(0x2008)), (0, 1_000_000));
    assert_eq!(guest.bytes(0x200c, 4), [FILL; 4]);
}

#[test]
fn a_flush_that_others_ask_for_is_done_on_the_next_load() {
    for (features, asked, flushes) in
        [(ALL, FLUSH_TLB, true), (ALL, 0, false), (ALL & !feature::PV_TLB_FLUSH, FLUSH_TLB, false)]
    {
        let mut guest = Guest::new(Some(features));
        guest.set_u32(0x1010, 0);
        assert_eq!(guest.write(STEAL_TIME, 0x1001), Ok(()));
        assert_eq!(guest.u64(0x1000), 0, "nothing is stolen from a vCPU that has its CPU for itself");
        put(guest.vcpu);
        assert_eq!(guest.u32(0x1010), PREEMPTED);
        guest.set_u32(0x1010, PREEMPTED | asked);
        let asid = guest.vmcb.asid();
        load(guest.vcpu, &mut guest.vmcb);
        assert_eq!(guest.u32(0x1010), 0);
        assert_eq!(guest.vmcb.asid() != asid, flushes, "{features:#x} {asked}");
    }
}

#[test]
fn polling_can_be_forbidden_only_where_it_is_offered() {
    for (offered, value, answer) in [(true, 0, true), (true, 1, true), (true, 2, false), (false, 0, false)] {
        assert_eq!(crate::state::kvm::Polling::new(offered).set(value), answer, "{offered} {value}");
    }
}

#[test]
fn nothing_is_written_for_a_vcpu_that_waits_for_its_start() {
    let mut guest = Guest::new(Some(ALL));
    for (number, value) in [(CLOCK, 0x1001), (STEAL_TIME, 0x1101)] {
        assert_eq!(guest.write(number, value), Ok(()));
    }
    let before = guest.bytes(0, SIZE);
    super::end(guest.vcpu);
    put(guest.vcpu);
    load(guest.vcpu, &mut guest.vmcb);
    super::adjust(guest.vcpu, &guest.vmcb);
    assert_eq!(guest.bytes(0, SIZE), before);
}

#[test]
fn a_new_life_begins_with_everything_off() {
    let mut guest = Guest::new(Some(ALL));
    for (number, value) in [(CLOCK, 0x1001), (STEAL_TIME, 0x1101), (WALL_CLOCK, 0x1200), (POLL_CONTROL, 0)] {
        assert_eq!(guest.write(number, value), Ok(()));
    }
    guest.vcpu.owned(crate::state::owned::Owned::reset);
    for (number, value) in [(CLOCK, 0), (STEAL_TIME, 0), (WALL_CLOCK, 0), (POLL_CONTROL, 1)] {
        assert_eq!(read(guest.vcpu, number), Ok(value), "{number:#x}");
    }
    let before = guest.bytes(0, SIZE);
    put(guest.vcpu);
    load(guest.vcpu, &mut guest.vmcb);
    super::adjust(guest.vcpu, &guest.vmcb);
    assert_eq!(guest.bytes(0, SIZE), before);
}
