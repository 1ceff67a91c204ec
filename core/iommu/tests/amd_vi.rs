// SPDX-License-Identifier: Apache-2.0 OR MIT
//! AMD-Vi: what its driver lets functions do, as an IOMMU sees it.

#[path = "amd_vi/model.rs"]
mod model;

use model::{LOG, Machine};
use turnstile_iommu::amd_vi::{AmdVi, Error, Event, Fault, Kind, MAX_FUNCTIONS, MESSAGE};

const CARD: u16 = 0x0018;
const DISK: u16 = 0x0320;
const IO_APIC: u16 = 0x00a0;
/// Neither end is that of a large page.
const MEMORY: (u64, u64) = (0x1_2340_1000, (2 << 20) - 0x1000 + (2 << 20));

fn started(units: usize) -> (Machine, AmdVi) {
    let mut machine = Machine::new(units);
    let driver = AmdVi::start(&mut machine, &vec![0; units], &[IO_APIC]).unwrap();
    (machine, driver)
}

fn faults(driver: &mut AmdVi, machine: &mut Machine) -> Vec<Fault> {
    let mut all = Vec::new();
    driver.faults(machine, &mut |fault| all.push(fault));
    all
}

#[test]
fn nothing_is_reached_from_the_start_on() {
    let (mut machine, mut driver) = started(2);
    for unit in 0..2 {
        for function in [0, CARD, DISK, IO_APIC, u16::MAX] {
            assert_eq!(machine.access(unit, function, MEMORY.0, false), None);
            assert_eq!(machine.access(unit, function, 0, true), None);
            let passes = (function == IO_APIC).then_some(Err(0x31));
            assert_eq!(machine.message(unit, function, 0x31), passes, "{function:#x}");
        }
    }
    assert_eq!(faults(&mut driver, &mut machine), [], "nobody listens to those that have nothing");
}

#[test]
fn a_function_reaches_its_memory_and_nothing_else() {
    let (mut machine, mut driver) = started(2);
    // What is remembered of before does not count.
    assert_eq!(machine.access(1, CARD, MEMORY.0, true), None);
    driver.reach(&mut machine, CARD, MEMORY).unwrap();
    let end = MEMORY.0 + MEMORY.1;
    for unit in 0..2 {
        for address in [MEMORY.0, MEMORY.0 + 0x1234, (MEMORY.0 | 0x1f_ffff) + 1, end - 1] {
            for writes in [false, true] {
                assert_eq!(machine.access(unit, CARD, address, writes), Some(address), "{address:#x}");
                assert_eq!(machine.access(unit, DISK, address, writes), None);
            }
        }
        for address in [0, MEMORY.0 - 1, end, 1 << 30, MEMORY.0 | 1 << 47, MEMORY.0 | 1 << 48, u64::MAX] {
            assert_eq!(machine.access(unit, CARD, address, true), None, "{address:#x}");
        }
        assert_eq!(machine.message(unit, CARD, MESSAGE), None, "that is another thing");
    }
    let other = (MEMORY.0 + (64 << 20), 0x1000);
    driver.reach(&mut machine, DISK, other).unwrap();
    assert_eq!(machine.access(0, DISK, other.0, true), Some(other.0));
    assert_eq!(machine.access(0, CARD, other.0, true), None);
    assert_eq!(machine.access(0, DISK, MEMORY.0, true), None);
    assert_eq!(driver.reach(&mut machine, CARD, other), Err(Error::Taken(CARD)));
    assert_eq!(machine.access(0, CARD, other.0, true), None);
}

/// The memory of a VM: two pieces, the first of which has large pages.
const LENT: [(u64, u64); 2] = [(0x2_0000_0000, 0x4000_0000), (0x8020_0000, 0x20_0000)];

#[test]
fn what_a_function_is_lent_it_reaches_until_it_is_taken_back() {
    let (mut machine, mut driver) = started(2);
    driver.reach(&mut machine, CARD, (0x9000_0000, 0x1000)).unwrap();
    assert_eq!(driver.lend(&mut machine, DISK, &LENT), Err(Error::Taken(DISK)), "it has no memory");
    driver.reach(&mut machine, DISK, MEMORY).unwrap();
    driver.message(&mut machine, DISK, (0x31, 7)).unwrap();
    for life in 1..4 {
        driver.lend(&mut machine, DISK, &LENT).unwrap();
        for (unit, (at, size)) in [0, 1].into_iter().flat_map(|unit| LENT.map(|piece| (unit, piece))) {
            for address in [at, at + 0x1238, at + size - 1] {
                for writes in [false, true] {
                    assert_eq!(machine.access(unit, DISK, address, writes), Some(address), "life {life}");
                }
                assert_eq!(machine.access(unit, CARD, address, false), None, "nobody else");
            }
            let beside = [at - 1, at + size];
            assert_eq!(beside.map(|address| machine.access(unit, DISK, address, true)), [None; 2]);
        }
        assert_eq!(machine.access(1, DISK, MEMORY.0, true), Some(MEMORY.0), "its own, too");
        assert_eq!(driver.lend(&mut machine, DISK, &LENT), Err(Error::Taken(DISK)));
        driver.take_back(&mut machine, DISK).unwrap();
        for (unit, (at, size)) in [0, 1].into_iter().flat_map(|unit| LENT.map(|piece| (unit, piece))) {
            for address in [at, at + 0x1238, at + size - 1] {
                assert_eq!(machine.access(unit, DISK, address, true), None, "not by what was cached");
            }
        }
        assert_eq!(machine.access(0, DISK, MEMORY.0, true), Some(MEMORY.0));
        assert_eq!(machine.message(0, DISK, MESSAGE), Some(Ok((0x31, 7))));
        assert_eq!(machine.access(0, CARD, 0x9000_0000, true), Some(0x9000_0000));
        let freed = machine.freed.len();
        driver.take_back(&mut machine, DISK).unwrap();
        assert_eq!((machine.freed.len(), freed % life), (freed, 0), "its tables, once in each life");
    }
    assert_ne!(machine.freed.len(), 0);
}

/// Who takes memory back is told when that has not come to its end.
#[test]
fn what_is_not_known_to_be_taken_back_is_an_error() {
    let (mut machine, mut driver) = started(2);
    driver.reach(&mut machine, DISK, MEMORY).unwrap();
    driver.lend(&mut machine, DISK, &LENT).unwrap();
    machine.units[1].is_dead = true;
    assert_eq!(driver.take_back(&mut machine, DISK), Err(Error::Stuck("COMPLETION_WAIT")));
    assert_eq!(machine.freed, [], "the tables may be in use");
}

#[test]
fn who_lends_is_told_if_an_iommu_does_not_answer() {
    let (mut machine, mut driver) = started(2);
    driver.reach(&mut machine, DISK, MEMORY).unwrap();
    machine.units[1].is_dead = true;
    assert_eq!(driver.lend(&mut machine, DISK, &LENT), Err(Error::Stuck("COMPLETION_WAIT")));
    assert_eq!(driver.lend(&mut machine, DISK, &LENT), Err(Error::Taken(DISK)));
}

#[test]
fn without_room_for_tables_nothing_is_lent() {
    for room in 0..6 {
        let (mut machine, mut driver) = started(1);
        driver.reach(&mut machine, DISK, MEMORY).unwrap();
        machine.room = room;
        let many: Vec<_> = (0..6).map(|at| (at << 40, 0x1000)).collect();
        assert!(matches!(driver.lend(&mut machine, DISK, &many), Err(Error::Paging(_))), "{room}");
        assert_eq!(machine.access(0, DISK, 1 << 40, false), None);
        assert_eq!(machine.access(0, DISK, MEMORY.0, false), Some(MEMORY.0));
    }
}

#[test]
fn a_function_sends_its_message_and_no_other() {
    let (mut machine, mut driver) = started(1);
    assert_eq!(machine.message(0, CARD, MESSAGE), None);
    driver.message(&mut machine, CARD, (0x31, 7)).unwrap();
    assert_eq!(machine.message(0, CARD, MESSAGE), Some(Ok((0x31, 7))));
    for data in 1..0x800 {
        assert_eq!(machine.message(0, CARD, data), None);
    }
    assert_eq!(machine.message(0, DISK, MESSAGE), None);
    assert_eq!(faults(&mut driver, &mut machine), [], "and that is recorded of nobody");
    assert_eq!(machine.access(0, CARD, MEMORY.0, true), None, "that is another thing");
    driver.reach(&mut machine, CARD, MEMORY).unwrap();
    assert_eq!(machine.message(0, CARD, MESSAGE), Some(Ok((0x31, 7))), "as it was");
    assert_eq!(machine.access(0, CARD, MEMORY.0, true), Some(MEMORY.0));
    assert_eq!(driver.message(&mut machine, CARD, (0x32, 7)), Err(Error::Taken(CARD)));
}

#[test]
fn each_function_is_heard_once() {
    let (mut machine, mut driver) = started(2);
    for (function, base) in [(CARD, MEMORY.0), (DISK, 64 << 20)] {
        driver.reach(&mut machine, function, (base, 0x1000)).unwrap();
    }
    assert_eq!(machine.access(1, CARD, 0x1234_5678, true), None);
    assert_eq!(machine.access(1, CARD, 0x2000, true), None);
    let first = Fault { function: CARD, address: Some(0x1234_5678) };
    assert_eq!(faults(&mut driver, &mut machine), [first]);
    assert_eq!(machine.access(1, CARD, 0x3000, true), None);
    assert_eq!(machine.access(1, DISK, 0x4000, false), None);
    let tail = machine.units[1].registers[&0x2018];
    assert_eq!(tail, 3 * 16, "the card records nothing any more");
    assert_eq!(faults(&mut driver, &mut machine), [Fault { function: DISK, address: Some(0x4000) }]);
    assert_eq!(machine.units[1].registers[&0x2010], tail, "the log has room again");
    assert_eq!(machine.units[1].registers[&0x2020] & 0b10, 0, "and interrupts again");
    assert_eq!(machine.access(1, CARD, MEMORY.0, true), Some(MEMORY.0), "its own is still its own");
    assert_eq!(faults(&mut driver, &mut machine), []);
}

/// Some events cannot be kept from being recorded: they interrupt for a while, and are lost then.
#[test]
fn who_makes_events_for_ever_takes_nobodys_time() {
    let (mut machine, mut driver) = started(1);
    driver.reach(&mut machine, CARD, MEMORY).unwrap();
    let interrupts = |machine: &Machine| machine.units[0].registers[&0x18] >> 3 & 1 == 1;
    for _ in 0..64 {
        machine.record(0, 8 << 60 | u64::from(DISK), 0);
        assert_eq!(faults(&mut driver, &mut machine), []);
        assert!(interrupts(&machine));
    }
    machine.record(0, 8 << 60 | u64::from(DISK), 0);
    assert_eq!(faults(&mut driver, &mut machine), []);
    assert!(!interrupts(&machine));
    assert_eq!(machine.access(0, CARD, 0x5000, true), None);
    assert_eq!(faults(&mut driver, &mut machine).len(), 1, "whoever looks is told");
    assert!(!interrupts(&machine));
}

#[test]
fn no_range_that_firmware_has_left_open_stays_so() {
    let mut machine = Machine::new(1);
    machine.units[0].registers.extend([(0x20, 0x4000_0003), (0x24, 1), (0x28, 0x7fff_f000), (0x2c, 1)]);
    AmdVi::start(&mut machine, &[0], &[]).unwrap();
    assert_eq!([0x20, 0x24, 0x28, 0x2c].map(|offset| machine.units[0].registers[&offset]), [0; 4]);
}

#[test]
fn a_log_that_has_lost_events_begins_anew() {
    let (mut machine, mut driver) = started(1);
    for (function, base) in [(CARD, MEMORY.0), (DISK, 64 << 20)] {
        driver.reach(&mut machine, function, (base, 0x1000)).unwrap();
    }
    for _ in 0..LOG {
        assert_eq!(machine.access(0, CARD, 0x5000, true), None);
    }
    assert_eq!(machine.access(0, DISK, 0x6000, true), None);
    assert_eq!(faults(&mut driver, &mut machine), [Fault { function: CARD, address: Some(0x5000) }]);
    assert_eq!(machine.access(0, DISK, 0x7000, true), None);
    assert_eq!(faults(&mut driver, &mut machine), [Fault { function: DISK, address: Some(0x7000) }]);
}

#[test]
fn what_is_not_there_is_said() {
    for (features, what) in [
        (0, "command that invalidates all"),
        (1 << 6 | 3 << 10, "page tables of its own"),
        (u32::MAX, "registers"),
    ] {
        let mut machine = Machine::new(2);
        machine.units[1].registers.insert(0x30, features);
        let error = AmdVi::start(&mut machine, &[0, 0], &[]).unwrap_err();
        assert_eq!(error, Error::Feature(what));
        assert!(machine.units.iter().all(|unit| unit.registers.len() == 1), "it is as it was");
    }
    let mut machine = Machine::new(1);
    machine.units[0].is_dead = true;
    let error = AmdVi::start(&mut machine, &[0], &[]).unwrap_err();
    assert_eq!(error, Error::Stuck("COMPLETION_WAIT"));
    assert!(error.to_string().contains("does not answer"));
    let many = [0; 9];
    assert_eq!(AmdVi::start(&mut Machine::new(9), &many, &[]).unwrap_err(), Error::TooMany);
}

#[test]
fn firmwares_wishes_are_in_the_control_register() {
    let mut machine = Machine::new(2);
    AmdVi::start(&mut machine, &[0b1111, 0], &[]).unwrap();
    let control = |unit: usize| machine.units[unit].registers[&0x18];
    let always = 1 | 1 << 2 | 1 << 3 | 1 << 10 | 1 << 12;
    assert_eq!([control(0), control(1)], [always | 1 << 1 | 1 << 8 | 1 << 9 | 1 << 11, always]);
}

#[test]
fn without_room_nothing_is_reached() {
    for room in 0..5 {
        let mut machine = Machine::new(1);
        machine.room = room;
        let started = AmdVi::start(&mut machine, &[0], &[]);
        assert_eq!(started.is_ok(), room >= 4, "{room}");
    }
    for room in 0..4 {
        let (mut machine, mut driver) = started(1);
        machine.room = room;
        assert!(driver.reach(&mut machine, CARD, MEMORY).is_err());
        assert_eq!(machine.access(0, CARD, MEMORY.0, true), None);
        machine.room = 0;
        assert!(driver.message(&mut machine, CARD, (0x31, 0)).is_err());
        assert_eq!(machine.message(0, CARD, MESSAGE), None);
    }
    let (mut machine, mut driver) = started(1);
    let mut give = |function: usize| driver.message(&mut machine, function as u16, (0x31, 0));
    assert!((0..MAX_FUNCTIONS).all(|function| give(function).is_ok()));
    assert_eq!(give(MAX_FUNCTIONS), Err(Error::TooMany));
    assert!(driver.reach(&mut machine, 3, (0x1800, 0x1000)).is_err(), "no whole pages");
}

#[test]
fn events_are_read() {
    let event = |kind, function, address| Event { kind, function, address };
    let read = |code: u64| Event::decode([code << 60 | 0x1234, 0x5678]);
    assert_eq!(read(1), event(Kind::DeviceTable, Some(0x1234), None));
    assert_eq!(read(2), event(Kind::Page, Some(0x1234), Some(0x5678)));
    assert_eq!(read(3), event(Kind::DeviceTableRead, Some(0x1234), None));
    assert_eq!(read(4), event(Kind::PageTableRead, Some(0x1234), None));
    assert_eq!(read(8), event(Kind::Request, Some(0x1234), Some(0x5678)));
    for code in [0, 5, 6, 7, 9, 15] {
        assert_eq!(read(code), event(Kind::Other(code as u8), None, None));
    }
}
