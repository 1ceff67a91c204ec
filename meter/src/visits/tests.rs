// SPDX-License-Identifier: Apache-2.0 OR MIT
use super::*;
use crate::block::{Code, Raw};
use crate::classify::Class;
use crate::footprint::{Footprint, Touch};
use crate::machine::tests::{Fake, block};
use crate::machine::{Reason, Register};

const NOP: u32 = 0xd503_201f;
const ERET: u32 = 0xd69f_03e0;
const LOAD: u32 = 0xf940_0020; // ldr x0, [x1]
const READ_ESR: u32 = 0xd53c_5200; // mrs x0, ESR_EL2
const VECTORS: u64 = 0x4020_0800;
const SYNC: u64 = VECTORS + 0x400;
const GUEST: u64 = 0x8000_1000;

/// A machine with the blocks of a small hypervisor.
struct Bench {
    code: Code,
    machine: Fake,
    meter: Meter,
    vector: &'static Block,
    body: &'static Block,
    end: &'static Block,
}

impl Bench {
    fn new(several: bool) -> Self {
        let mut code = Code::new(Isa::Arm64);
        let vector = block(&mut code, SYNC, 2, &[NOP, READ_ESR]);
        let body = block(&mut code, 0x4030_0000, 2, &[NOP, LOAD, NOP, NOP]);
        let end = block(&mut code, 0x4030_0040, 2, &[ERET]);
        let mut machine = Fake::default();
        machine.set(Register::EsrEl2, 0x16 << 26);
        machine.set(Register::ElrEl2, GUEST + 16);
        machine.set(Register::VbarEl2, VECTORS);
        Bench { code, machine, meter: Meter::new(Isa::Arm64, several, Details::default()), vector, body, end }
    }

    fn guest(&mut self) {
        self.meter.guest(GuestBlock::new(GUEST, 4), &mut self.machine);
    }

    fn outside(&mut self, block: &'static Block) {
        self.meter.outside(block, &mut self.machine);
    }

    /// One exit with the body `times` times.
    fn visit(&mut self, times: u64) {
        self.outside(self.vector);
        (0..times).for_each(|_| self.outside(self.body));
        self.outside(self.end);
        self.guest();
    }

    fn group(&self) -> &Group {
        self.meter.groups().sorted()[0]
    }
}

#[test]
fn a_visit_is_from_exit_to_entry() {
    let mut bench = Bench::new(false);
    bench.outside(bench.body);
    bench.guest();
    bench.visit(1);
    bench.visit(1);
    let group = bench.group();
    assert_eq!((group.visits, group.min, group.max, group.sum), (2, 7, 7, 14));
    assert_eq!(group.key.reason, Reason::Class(0x16));
    assert_eq!((group.key.pc, group.key.vectors), (GUEST + 16, VECTORS));
    assert_eq!(bench.meter.guest_instructions(), 12);
    assert_eq!(bench.meter.outside_instructions(), 14 + 4, "what ran before the guest, too");
    let tally = &group.modal().unwrap().tally;
    for (class, count) in [
        (Class::Instructions, 7),
        (Class::Loads, 1),
        (Class::Lines, 3),
        (Class::HardwareReads, 1),
        (Class::ExceptionEntries, 1),
        (Class::ExceptionReturns, 1),
        (Class::Stores, 0),
    ] {
        assert_eq!(tally.get(class), count, "{class:?}");
    }
    assert_eq!(bench.machine.asked, 0, "one CPU needs no name");
}

#[test]
fn an_unfinished_visit_is_outside_but_no_visit() {
    let mut bench = Bench::new(false);
    bench.guest();
    bench.outside(bench.vector);
    bench.outside(bench.body);
    assert_eq!(bench.meter.outside_instructions(), 6);
    assert!(bench.meter.groups().sorted().is_empty());
}

#[test]
fn what_traps_in_the_middle_of_a_block_ends_it() {
    let mut bench = Bench::new(false);
    bench.machine.set(Register::ElrEl2, GUEST + 4);
    bench.guest();
    bench.visit(0);
    assert_eq!(bench.meter.guest_instructions(), 1 + 4);
    // An interrupt comes between blocks: its address says nothing about the last one.
    let mut bench = Bench::new(false);
    bench.machine.set(Register::ElrEl2, GUEST);
    let irq = block(&mut bench.code, VECTORS + 0x480, 2, &[NOP]);
    bench.guest();
    bench.outside(irq);
    assert_eq!(bench.meter.guest_instructions(), 4);
}

#[test]
fn the_mode_is_the_most_frequent_and_then_the_smaller() {
    let mut bench = Bench::new(false);
    bench.guest();
    for times in [3, 1, 2, 2, 1, 5] {
        bench.visit(times);
    }
    let group = bench.group();
    assert_eq!(group.modal().unwrap().instructions, 3 + 4);
    assert_eq!((group.visits, group.min, group.max), (6, 7, 23));
    let mut kinds: Vec<_> = group.kinds.iter().map(|kind| (kind.instructions, kind.visits)).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, [(7, 2), (11, 2), (15, 1), (23, 1)]);
}

#[test]
fn groups_differ_by_place_and_reason() {
    let mut bench = Bench::new(false);
    bench.guest();
    bench.visit(1);
    bench.visit(1);
    bench.machine.set(Register::ElrEl2, GUEST + 400);
    bench.visit(1);
    bench.machine.set(Register::EsrEl2, 0x24 << 26);
    bench.visit(1);
    let groups = bench.meter.groups().sorted();
    let found: Vec<_> = groups.iter().map(|group| (group.visits, group.key.reason, group.key.pc)).collect();
    let (hvc, abort) = (Reason::Class(0x16), Reason::Class(0x24));
    assert_eq!(found, [(2, hvc, GUEST + 16), (1, hvc, GUEST + 400), (1, abort, GUEST + 400)]);
}

#[test]
fn what_services_execute_is_told_apart() {
    let mut bench = Bench::new(false);
    // Where it is linked; its copy is a part of it.
    bench.code = Code::new(Isa::Arm64).copying(0x7004..0x700c);
    let service = block(&mut bench.code, (6 << 20) + 0x7000, 0, &[NOP, LOAD, NOP]);
    let not_one = block(&mut bench.code, 0x7004, 2, &[NOP]);
    bench.guest();
    bench.outside(bench.vector);
    bench.outside(service);
    bench.outside(not_one);
    bench.outside(bench.end);
    bench.guest();
    let tally = &bench.group().modal().unwrap().tally;
    let counts = [Class::Instructions, Class::InServices, Class::Copy].map(|class| tally.get(class));
    assert_eq!(counts, [2 + 3 + 1 + 1, 3, 2]);
}

#[test]
fn a_fault_outside_ends_its_block_and_counts_as_an_entry() {
    let mut bench = Bench::new(false);
    bench.guest();
    bench.outside(bench.vector);
    bench.outside(bench.body);
    // The load faults: it and what follows were not executed.
    bench.machine.set(Register::ElrEl2, bench.body.start + 4);
    let handler = block(&mut bench.code, VECTORS + 0x200, 2, &[NOP, NOP]);
    bench.outside(handler);
    bench.outside(bench.end);
    bench.guest();
    let tally = &bench.group().modal().unwrap().tally;
    assert_eq!(bench.group().sum, 2 + 1 + 2 + 1);
    assert_eq!(tally.get(Class::Instructions), 6);
    assert_eq!((tally.get(Class::Loads), tally.get(Class::ExceptionEntries)), (0, 2));
}

#[test]
fn an_access_to_a_device_is_the_last_of_its_block() {
    let mut bench = Bench::new(false);
    bench.guest();
    bench.outside(bench.vector);
    bench.outside(bench.body);
    let load = bench.body.start + 4;
    bench.meter.device(load, "gicv3_dist", false, &mut bench.machine);
    bench.meter.device(load, "pl011", true, &mut bench.machine);
    let rest = block(&mut bench.code, load + 4, 2, &[NOP, NOP]);
    bench.outside(rest);
    bench.outside(bench.end);
    bench.guest();
    let group = bench.group();
    let tally = &group.modal().unwrap().tally;
    assert_eq!(group.sum, 2 + 2 + 2 + 1);
    assert_eq!((tally.get(Class::IrqchipReads), tally.get(Class::MmioWrites)), (1, 1));
    assert_eq!((tally.get(Class::IrqchipWrites), tally.get(Class::MmioReads)), (0, 0));
    assert_eq!(tally.devices.len(), 2);
}

#[test]
fn cpus_on_one_thread_are_told_apart() {
    let mut bench = Bench::new(true);
    bench.machine.cpu = 0x1000;
    bench.guest();
    bench.machine.cpu = 0x2000;
    bench.outside(bench.end);
    bench.guest();
    let asked = bench.machine.asked;
    bench.guest();
    bench.machine.cpu = 0x1000;
    bench.guest();
    assert_eq!(bench.machine.asked, asked, "both are in the guest: no matter who it is");
    // CPU 0 exits; in the middle of its visit CPU 1 runs its guest, exits, and returns.
    bench.outside(bench.vector);
    bench.outside(bench.body);
    bench.machine.cpu = 0x2000;
    bench.guest();
    bench.visit(5);
    bench.machine.cpu = 0x1000;
    bench.outside(bench.end);
    bench.machine.cpu = 0x2000;
    bench.guest();
    bench.machine.cpu = 0x1000;
    bench.guest();
    let groups = bench.meter.groups().sorted();
    let found: Vec<_> = groups.iter().map(|group| (group.key.cpu, group.visits, group.sum)).collect();
    assert_eq!(found, [(0, 1, 7), (1, 1, 23)]);
    assert_eq!(bench.meter.cpus(), 2);
}

#[test]
fn kinds_beyond_the_limit_are_counted_but_not_told_apart() {
    let mut bench = Bench::new(false);
    bench.guest();
    (0..1100).for_each(|times| bench.visit(times));
    let group = bench.group();
    assert_eq!((group.visits, group.kinds.len(), group.others), (1100, 1024, 76));
    assert_eq!(group.max, 3 + 4 * 1099);
}

#[test]
fn places_beyond_the_limit_are_counted_together() {
    let mut bench = Bench::new(false);
    bench.guest();
    for index in 0..(1 << 16) + 10 {
        bench.machine.set(Register::ElrEl2, GUEST + 0x1000 + 4 * index);
        bench.visit(0);
    }
    assert!(bench.meter.groups().merged);
    let first = bench.group();
    assert_eq!((first.key.pc, first.visits), (0, 10));
}

#[test]
fn a_very_long_visit_has_its_sum() {
    let times = PATH as u64 + 1000;
    let mut bench = Bench::new(false);
    bench.guest();
    bench.visit(times);
    let tally = &bench.group().modal().unwrap().tally;
    assert_eq!(tally.get(Class::Instructions), 3 + 4 * times);
    assert_eq!(tally.get(Class::Loads), times);
    assert_eq!((tally.get(Class::Lines), tally.get(Class::ExceptionEntries)), (3, 1));
}

#[test]
fn a_trace_is_the_way_of_the_first_visit_of_its_kind() {
    let mut bench = Bench::new(false);
    bench.meter = Meter::new(Isa::Arm64, false, Details { trace: true, footprint: false });
    bench.guest();
    bench.visit(1);
    let path = &bench.group().modal().unwrap().path;
    let starts: Vec<u64> = path.iter().map(|step| step.block.start).collect();
    assert_eq!(starts, [SYNC, bench.body.start, bench.end.start]);
}

#[test]
fn blocks_of_the_guest_fit_into_a_pointer() {
    let block = GuestBlock::new(0xffff_8000_1234_5678, 5);
    assert_eq!(block.instructions(), 5);
    assert_eq!(block.from(0xffff_8000_1234_5678), 5);
    assert_eq!(block.from(0xffff_8000_1234_5688), 1);
    assert_eq!(block.from(0xffff_8000_1234_568c), 0, "behind it");
    assert_eq!(block.from(0xffff_8000_1234_5674), 0, "before it");
}

/// A block of x86 code.
fn x86(code: &mut Code, start: u64, bytes: &[&[u8]]) -> &'static Block {
    let mut pc = start;
    let raw = bytes.iter().map(|bytes| {
        let raw = Raw { pc, bytes: bytes.to_vec(), text: None };
        pc += bytes.len() as u64;
        raw
    });
    code.block(0, true, raw.collect()).0
}

#[test]
fn vmrun_leads_into_the_guest_and_behind_it_the_host_goes_on() {
    let mut code = Code::new(Isa::X86);
    let mut machine = Fake::default();
    let mut meter = Meter::new(Isa::X86, false, Details::default());
    let entry = x86(&mut code, 0x20_0000, &[&[0x90], &[0x0f, 0x01, 0xd8]]);
    let behind = x86(&mut code, 0x20_0004, &[&[0x90], &[0x48, 0xcf]]);
    let resume = Resume { pc: 0x20_0004, host: Some(0x7f00_0004) };
    assert!(!meter.in_guest_mode(0x1000, 0x1000, &mut machine), "no VMRUN yet");
    meter.outside(entry, &mut machine);
    assert!(!meter.in_guest_mode(0x1000, 0x1000, &mut machine), "an exception before VMRUN");
    meter.vmrun(resume, &mut machine);
    assert!(meter.in_guest_mode(0x1000, 0x1000, &mut machine));
    assert!(meter.in_guest_mode(0x20_0004, 0x7f12_3004, &mut machine), "the guest's code at this address");
    meter.guest(GuestBlock::new(0x1000, 3), &mut machine);
    for _ in 0..2 {
        assert!(!meter.in_guest_mode(0x20_0004, 0x7f00_0004, &mut machine));
        meter.outside(behind, &mut machine);
        assert!(!meter.in_guest_mode(0x1000, 0x1000, &mut machine), "IRET leads to no guest");
        meter.outside(entry, &mut machine);
        meter.vmrun(resume, &mut machine);
        meter.guest(GuestBlock::new(0x1000, 3), &mut machine);
    }
    let groups = meter.groups().sorted();
    assert_eq!((groups.len(), groups[0].visits, groups[0].sum), (1, 2, 8));
    assert_eq!(meter.guest_instructions(), 9);
}

#[test]
fn an_entry_that_is_left_at_once_is_part_of_its_visit() {
    let mut code = Code::new(Isa::X86);
    let mut machine = Fake::default();
    let mut meter = Meter::new(Isa::X86, false, Details::default());
    let entry = x86(&mut code, 0x20_0000, &[&[0x0f, 0x01, 0xd8]]);
    let behind = x86(&mut code, 0x20_0003, &[&[0x90]]);
    let resume = Resume { pc: 0x20_0003, host: None };
    for left_at_once in [false, true] {
        meter.outside(behind, &mut machine);
        for _ in 0..=u32::from(left_at_once) {
            meter.outside(entry, &mut machine);
            meter.vmrun(resume, &mut machine);
            assert!(!meter.in_guest_mode(0x20_0003, 0x1234, &mut machine));
            if left_at_once {
                meter.outside(behind, &mut machine);
            }
        }
        meter.outside(entry, &mut machine);
        meter.vmrun(resume, &mut machine);
        meter.guest(GuestBlock::new(0x1000, 1), &mut machine);
    }
    let groups = meter.groups().sorted();
    assert_eq!((groups.len(), groups[0].visits), (1, 1), "the first is no visit: no guest was before it");
    assert_eq!(groups[0].sum, 6);
}

#[test]
fn what_is_touched_on_a_visit_is_counted_once() {
    let mut bench = Bench::new(false);
    bench.meter = Meter::new(Isa::Arm64, false, Details { trace: false, footprint: true });
    let touch = |bench: &mut Bench, address| {
        bench.meter.touch(Touch { address, memory: Some(address) }, &mut bench.machine);
    };
    bench.guest();
    touch(&mut bench, 0x9000);
    bench.outside(bench.vector);
    // As often as it takes to fold the visit, and another line of the page.
    (0..=PATH).for_each(|_| touch(&mut bench, 0x5008));
    touch(&mut bench, 0x5040);
    bench.outside(bench.end);
    bench.guest();
    let footprint = bench.group().modal().unwrap().tally.footprint;
    assert_eq!(footprint, Some(Footprint { code_lines: 2, data_lines: 2, pages: 3 }));
}

#[test]
fn without_the_option_nothing_is_said_of_memory() {
    let mut bench = Bench::new(false);
    bench.guest();
    bench.visit(1);
    assert_eq!(bench.group().modal().unwrap().tally.footprint, None);
}
