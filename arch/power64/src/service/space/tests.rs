// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What each way out of a service means, against a recorder.

use std::string::{String, ToString};
use std::vec::Vec;

use turnstile_arch_common::service::{DEVICE, Space as _};
use turnstile_paging::PartitionAttributes;
use turnstile_service::abi::Kind;
use turnstile_service::image::{Header, PAGE};

use super::super::context::Found;
use super::*;
use crate::cpu::regs::fakes::{self, Access};

const AT: u64 = memory::BASE + 0x40;

fn space() -> Space {
    let header = Header {
        isa: ISA,
        entry: 0x20,
        code: PAGE,
        data: PAGE,
        zeros: 2 * PAGE,
        kept: PAGE,
        stack: PAGE,
        ..Header::default()
    };
    let mut file = header.bytes().to_vec();
    file.resize((PAGE + header.file()) as usize, 0x11);
    let image = Image::parse(file.leak(), ISA).unwrap();
    fakes::reset();
    Space::new(image, 2_000_000).unwrap()
}

/// Lets it be left by an interrupt of the hypervisor's.
fn left(space: &Space, vector: u32, (pc, state): (u64, u64), found: Found) -> Left {
    fakes::set("HSRR0", pc);
    fakes::set("HSRR1", state);
    // SAFETY: nobody else has it.
    unsafe { (*space.context.get()).found = found };
    fakes::take_log();
    space.interrupted(vector)
}

fn writes() -> Vec<&'static str> {
    let name = |access: Access| match access {
        Access::Write(name, _) => Some(name),
        Access::Read(_) => None,
    };
    fakes::take_log().into_iter().filter_map(name).collect()
}

fn pc(space: &Space) -> u64 {
    space.context().pc
}

#[test]
fn physical_interrupts_are_the_hypervisors() {
    let space = space();
    for vector in [0x980, 0xe80, 0xea0] {
        assert_eq!(left(&space, vector, (AT, STATE), Found::default()), Left::Interrupt);
        assert_eq!(pc(&space), AT, "it goes on there");
        assert_eq!(writes(), [] as [&str; 0]);
    }
    // Maintenance is nobody's: it goes on, and makes a call.
    assert_eq!(left(&space, 0xe60, (AT, STATE), Found::default()), Left::Call);
    assert_eq!(writes(), ["HMER", "service resumes"]);
}

/// Whatever interrupts it: what is in vector registers outside of it is the guest's.
#[test]
fn vector_registers_are_the_guests_again_when_it_is_interrupted() {
    let space = space();
    // SAFETY: nobody else has it.
    let context = || unsafe { &mut *space.context.get() };
    fakes::set("VSR", 0x5e);
    let begin = || {
        fakes::set("VSR", 0x60e5);
        context().lend();
        fakes::set("VSR", 0x5e);
    };
    begin();
    for (vector, way) in [(0x980, Left::Interrupt), (0xe00, Left::Fault)] {
        assert_eq!(left(&space, vector, (AT, STATE), Found::default()), way);
        assert_eq!((fakes::get("VSR"), context().lending.lent), (0x60e5, 0));
        fakes::take_log();
        // SAFETY: as above.
        assert_eq!(unsafe { space.resume(None) }, Left::Call);
        assert_eq!(writes(), ["VSR", "service resumes with vectors"]);
        assert_eq!((fakes::get("VSR"), context().lending.lent), (0x5e, 1), "it has its own");
    }
    // Also if it goes on at once.
    assert_eq!(left(&space, 0xe60, (AT, STATE), Found::default()), Left::Call);
    assert_eq!(writes(), ["VSR", "HMER", "VSR", "service resumes with vectors"]);
    // It is killed: whatever interrupts it next, it has none.
    assert_eq!(left(&space, 0x980, (AT, STATE), Found::default()), Left::Interrupt);
    assert_eq!(left(&space, 0x980, (AT, STATE), Found::default()), Left::Interrupt);
    // SAFETY: as above.
    assert_eq!(unsafe { space.resume(None) }, Left::Call);
    assert_eq!((writes(), fakes::get("VSR")), (vec!["service resumes"], 0x60e5));
}

#[test]
fn what_it_must_not_do_is_a_fault() {
    let space = space();
    for vector in [0xe00, 0xe20, 0xe40, 0xf80, 0x1500] {
        assert_eq!(left(&space, vector, (AT, STATE), Found::default()), Left::Fault, "{vector:#x}");
    }
    for vector in [0x100, 0x200] {
        let found = Found { srr0: AT, srr1: STATE, ..Found::default() };
        assert_eq!(left(&space, vector, (0, 0), found), Left::Fault);
        assert_eq!(pc(&space), AT);
    }
    // Its own partition's interrupts, wherever LPCR.AIL puts them.
    for own in [0x300, 0x400, 0x600, 0x700, 0x800, 0xc00, 0xf20, 0xf40, 0xf60] {
        for base in [0, 0x1_8000, 0xc000_0000_0000_4000] {
            let found = Found { srr0: AT + 4, srr1: STATE, ..Found::default() };
            let at = (base + own, msr::SF | msr::ME | msr::LE);
            assert_eq!(left(&space, 0xe20, at, found), Left::Fault, "{own:#x}");
            assert_eq!(pc(&space), AT + 4);
            assert_eq!(writes(), [] as [&str; 0]);
        }
    }
}

/// EE is 1 in problem state: what the guest has masked strikes in the service, which goes on, and again in the guest.
#[test]
fn the_guests_interrupts_wait_for_the_guest() {
    let space = space();
    fakes::set("DEC", 0xffff_fff0);
    let found = Found { srr0: AT, srr1: STATE, ..Found::default() };
    assert_eq!(left(&space, 0xe20, (0x900, msr::SF), found), Left::Call);
    assert_eq!(writes(), ["DEC", "service resumes", "DEC"]);
    assert_eq!(time::signed(fakes::get("DEC")), -16);
    assert_eq!(pc(&space), AT);
    // The hypervisor's own timer rings before the first fetch at the partition's vector: both are dealt with.
    assert_eq!(left(&space, 0x980, (0x900, msr::SF), found), Left::Interrupt);
    assert_eq!(pc(&space), AT);
    assert_eq!(writes(), ["DEC", "DEC"]);
    assert_eq!(left(&space, 0x980, (0x700, msr::SF), found), Left::Fault);
}

#[test]
fn only_a_load_or_a_store_where_nothing_is_mapped_is_a_miss() {
    const NO_ENTRY: u64 = 1 << 30;
    const STORE: u64 = 1 << 25;
    const TABLES: u64 = 1 << 17;
    const PROTECTION: u64 = 1 << 27;
    let space = space();
    fakes::set("HDAR", memory::WINDOWS + 0x1238);
    let missed = |vector, at, status| {
        fakes::set("HDSISR", status);
        let found = Found { srr0: AT, srr1: STATE, ..Found::default() };
        assert_eq!(left(&space, vector, at, found), Left::Fault);
        // SAFETY: nobody else has it.
        unsafe { space.missed() }
    };
    for status in [NO_ENTRY, NO_ENTRY | STORE] {
        assert_eq!(missed(0xe00, (AT, STATE), status), Some(memory::WINDOWS + 0x1238));
    }
    for status in [PROTECTION, NO_ENTRY | TABLES, 0] {
        assert_eq!(missed(0xe00, (AT, STATE), status), None, "{status:#x}");
    }
    assert_eq!(missed(0xe20, (AT, STATE), NO_ENTRY), None, "a fetch");
    assert_eq!(missed(0xe20, (0x700, msr::SF), NO_ENTRY), None, "an interrupt of its own");
}

#[test]
fn what_is_excused_is_not_its_time() {
    let space = space();
    // SAFETY: nobody else has it.
    unsafe { (*space.context.get()).entered = 1000 };
    let slice = space.context().fixed.slice;
    for passed in 1..=16 {
        // SAFETY: as above.
        unsafe { space.excuse(|| fakes::set("TB", 1000 + passed * slice)) };
        assert!(!space.is_late());
    }
}

#[test]
fn a_window_on_demand_has_the_blocks_that_were_supplied() {
    const BLOCK: u64 = 2 << 20;
    let space = space();
    let mapped = || space.memory.lock().mapped.clone();
    let mut windows = [Window { host: 0x4020_0000, size: 4 * BLOCK, on_demand: true, ..Window::default() }];
    // SAFETY: nobody else has it, and nothing translates.
    unsafe { space.attach(1, &mut windows) }.unwrap();
    assert_eq!(mapped(), []);
    // SAFETY: as above.
    assert!(unsafe { space.supply(&windows[0], BLOCK + 0x1238, 0x7020_0000) });
    let [(at, host, size, attributes)] = mapped()[..] else { panic!("{:?}", mapped()) };
    assert_eq!((at, host, size), ((1 << 40) + 0x40_0000, 0x7020_0000, BLOCK));
    assert_eq!(attributes, PartitionAttributes { write: true, execute: false, device: false });
    fakes::take_log();
    // SAFETY: as above.
    unsafe { space.withdraw(&windows[0], 0..2 * BLOCK) };
    assert_eq!(mapped(), []);
    assert_eq!(fakes::take_log(), [Access::Write("TLBIE_LPID", space.context().fixed.lpid)]);
    // SAFETY: as above.
    assert!(unsafe { space.supply(&windows[0], BLOCK, 0x7220_0000) });
    // SAFETY: as above.
    unsafe { space.withdraw(&windows[0], 2 * BLOCK..4 * BLOCK) };
    assert_eq!(mapped().len(), 1, "no other block");
    // SAFETY: as above.
    unsafe { space.detach(1) };
    assert_eq!(mapped(), []);
}

#[test]
fn a_service_is_late_by_the_time_of_the_event() {
    let space = space();
    // SAFETY: nobody else has it.
    unsafe { (*space.context.get()).entered = 1000 };
    let slice = space.context().fixed.slice;
    assert_eq!(slice, time::frequency() / 500 / 8, "of two milliseconds");
    let late = (1..).find(|passed| {
        fakes::set("TB", 1000 + passed * slice);
        space.is_late()
    });
    assert_eq!(late, Some(8));
    // SAFETY: as above.
    unsafe { (*space.context.get()).entered = 1000 + 9 * slice };
    fakes::set("TB", 1000 + 99 * slice);
    assert!(!space.is_late(), "as long as the CPU stood still, nobody did anything");
    assert_eq!(ticks(u64::MAX), i32::MAX as u64, "as far as the hypervisor decrementer counts");
}

#[test]
fn it_is_entered_with_its_event_and_leaves_with_its_call() {
    let space = space();
    // SAFETY: nobody else has it.
    unsafe {
        for (number, register) in (0..).zip((*space.context.get()).gpr.iter_mut()) {
            *register = number;
        }
        assert_eq!(space.enter(&Event::new(Kind::Read, [0; 5])), Left::Call);
        assert_eq!(space.call(), [3, 0, 0, 0, 0, 0]);
        assert_eq!(space.resume(Some(77)), Left::Call);
        assert_eq!(space.call()[0], 77);
        assert_eq!(space.resume(None), Left::Call);
    }
    assert!(writes().ends_with(&["service enters", "service resumes", "service resumes"]));
    let fixed = &space.context().fixed;
    assert_eq!((fixed.entry, fixed.stack), (memory::BASE + 0x20, memory::BASE + 6 * 4096));
    assert!(LPIDS.contains(&(fixed.lpid as u32)));
}

/// What is mapped of windows: where behind the first window of memory, the physical address, the size, and what it is for.
fn mapped(space: &Space) -> impl Iterator<Item = memory::Mapped> {
    const FIRST: u64 = 1 << 40;
    let mapped = space.memory.lock().mapped.clone();
    mapped.into_iter().map(|(at, host, size, attributes)| (at - FIRST, host, size, attributes))
}

#[test]
fn registers_of_a_device_are_apart_from_memory() {
    const BAR: u64 = 0x6_00c0_0001_0000;
    const APART: u64 = 512 << 30;
    let space = space();
    let mut windows = [
        Window { host: 0x8000, size: 0x3000, ..Window::default() },
        Window { host: BAR, size: 0x4000, registers: true, ..Window::default() },
    ];
    // SAFETY: nobody is inside, and nothing is mapped on the host.
    unsafe { space.attach(DEVICE, &mut windows) }.unwrap();
    let [memory, registers] = windows.map(|window| window.address);
    assert_eq!(memory, memory::WINDOWS + 0x8000);
    assert_eq!(registers, memory::REGISTERS + (1 << 30) + 0x1_0000);
    let found: Vec<_> = mapped(&space).collect();
    let attributes = |device| PartitionAttributes { write: true, execute: false, device };
    assert_eq!(
        found,
        [
            (0x8000, 0x8000, 0x3000, attributes(false)),
            (APART + (1 << 30) + 0x1_0000, BAR, 0x4000, attributes(true)),
        ]
    );
    // SAFETY: as above.
    unsafe { space.detach(DEVICE) };
    assert_eq!(mapped(&space).count(), 0);
}

#[test]
fn windows_of_the_other_members_stay() {
    const GIB: u64 = 1 << 30;
    let space = space();
    let lpid = space.context().fixed.lpid;
    let attach = |member, host, size| {
        let mut windows = [Window { host, size, ..Window::default() }];
        // SAFETY: nobody is inside, and nothing is mapped on the host.
        let attached = unsafe { space.attach(member, &mut windows) };
        attached.map(|()| windows[0].address - memory::WINDOWS).ok()
    };
    let mapped = || mapped(&space).map(|(at, host, size, _)| (at, host, size)).collect::<Vec<_>>();
    assert_eq!(attach(0, 0x1000, 0x2000), Some(0x1000), "as the memory is in its GiB");
    assert_eq!(attach(5, 3 * GIB, 2 * GIB), Some(GIB));
    assert_eq!(attach(1, 0, 512 * GIB), None);
    assert_eq!(mapped(), [(0x1000, 0x1000, 0x2000), (GIB, 3 * GIB, 2 * GIB)]);
    for member in [0, 1] {
        fakes::take_log();
        // SAFETY: as above.
        unsafe { space.detach(member) };
        assert_eq!(mapped(), [(GIB, 3 * GIB, 2 * GIB)]);
        assert_eq!(fakes::take_log(), [Access::Write("TLBIE_LPID", lpid)], "whatever was attached");
    }
    assert_eq!(attach(2, 0x3000, 0x1000), Some(0x3000), "where member 0 was");
}

#[test]
fn its_memory_begins_anew_but_for_what_is_kept() {
    let space = space();
    let size = space.image.header().size() as usize;
    let memory = || {
        let start = ptr::with_exposed_provenance_mut::<u8>(space.memory.lock().address as usize);
        // SAFETY: its memory; nobody else uses it.
        unsafe { core::slice::from_raw_parts_mut(start, size) }
    };
    // A page of code, one of data, two of zeros, of which the second is kept, the one that is not mapped, and the stack.
    let pages = || -> Vec<u8> { memory().chunks(4096).map(|page| page[8]).collect() };
    memory().fill(0xff);
    // SAFETY: nobody is inside.
    unsafe { space.begin(true) };
    assert_eq!(pages(), [0x11, 0x11, 0, 0xff, 0xff, 0]);
    // SAFETY: as above.
    unsafe { space.begin(false) };
    assert_eq!(pages(), [0x11, 0x11, 0, 0, 0xff, 0]);
}

#[test]
fn a_report_names_the_cause() {
    struct Explained<'a>(&'a Space, Left);
    impl fmt::Display for Explained<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.explain(self.1, f)
        }
    }
    let space = space();
    let first = |left| -> String {
        let text = Explained(&space, left).to_string();
        assert_eq!(text.lines().count(), 10);
        text.lines().next().map(String::from).unwrap_or_default()
    };
    fakes::set("HDAR", 0x1234);
    fakes::set("HEIR", 0x200);
    left(&space, 0xe00, (AT, STATE), Found::default());
    assert_eq!(
        first(Left::Fault),
        "  at 0xf000000000040 (program + 0x40): hypervisor data storage interrupt (0xe00), HDAR 0x1234, HDSISR 0x0, ASDR 0x0"
    );
    left(&space, 0xe40, (AT, STATE), Found::default());
    assert!(first(Left::Fault).ends_with(": no instruction that it has (0xe40), HEIR 0x200"));
    let found = Found { srr0: AT, srr1: STATE, dar: 0x10, dsisr: 1 << 30 };
    left(&space, 0xe20, (0x300, 0), found);
    assert!(
        first(Left::Fault)
            .ends_with("data storage interrupt (0x300), SRR1 0x800000000000d033, DAR 0x10, DSISR 0x40000000")
    );
    assert!(first(Left::Call).ends_with(": call"));
}
