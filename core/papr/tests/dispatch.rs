// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a guest is told of its vCPU's turns: exactly where it has registered memory for that, and nowhere else.

mod common;

use std::cell::RefCell;

use proptest::prelude::*;
use turnstile_papr::Memory;
use turnstile_papr::code::Code;
use turnstile_papr::dispatch::{Left, Turn};
use turnstile_papr::vpa::{Areas, LOG_ENTRY, offset};

use common::Ram;

const SIZE: usize = 0x4000;
const VPA: u64 = 0x1000;
const LOG: u64 = 0x2000;
const REGISTER_VPA: u64 = 1 << 45;
const REGISTER_LOG: u64 = 2 << 45;
const REGISTER_SHADOW: u64 = 3 << 45;
const DEREGISTER_VPA: u64 = 5 << 45;
const DEREGISTER_LOG: u64 = 6 << 45;

impl Ram {
    fn double(&self, address: u64) -> u64 {
        let mut bytes = [0; 8];
        assert!(self.read(address, &mut bytes));
        u64::from_be_bytes(bytes)
    }

    fn word_at(&self, address: u64) -> u32 {
        self.word(address).unwrap()
    }
}

/// A guest with an area, and a log of so many bytes.
fn guest(log: u32, mask: u8) -> (Ram, Areas) {
    let (ram, mut areas) = (Ram(RefCell::new(vec![0; SIZE])), Areas::default());
    assert!(ram.set_word(VPA + offset::SIZE, 640 << 16) && ram.write(VPA + offset::LOG_MASK, &[mask]));
    assert_eq!(areas.call(REGISTER_VPA, VPA, &ram), Code::SUCCESS);
    if log != 0 {
        assert!(ram.set_word(LOG + offset::SIZE, log));
        assert_eq!(areas.call(REGISTER_LOG, LOG, &ram), Code::SUCCESS);
    }
    (ram, areas)
}

/// What ended a turn.
#[derive(Clone, Copy)]
enum Reason {
    Waits,
    Preempted,
}

/// The vCPU leaves at `left`, is ready `waited` ticks later (at least one; or was before, if it is preempted), and gets a CPU
/// `stolen` ticks after that.
fn turn(areas: &mut Areas, ram: &Ram, why: Reason, [left, waited, before, stolen]: [u64; 4]) {
    areas.leave(Left { now: left, stolen: before }, ram);
    let ready = match why {
        Reason::Waits => left + waited.max(1),
        Reason::Preempted => left.saturating_sub(3),
    };
    let now = left + waited + stolen;
    areas.dispatch(&Turn { processor: 5, now, ready, stolen: before + stolen, pc: 0x1234, msr: 0x8000 }, ram);
}

#[test]
fn an_entry_says_what_linux_reads_there() {
    let (ram, mut areas) = guest(4096, 7);
    turn(&mut areas, &ram, Reason::Waits, [1000, 300, 77, 20]);
    assert_eq!(ram.word_at(LOG), 0x0102_0005, "an event; H_CEDE; the processor");
    assert_eq!([4, 8, 12].map(|at| ram.word_at(LOG + at)), [20, 0, 300]);
    assert_eq!([16, 24, 32, 40].map(|at| ram.double(LOG + at)), [1320, 0, 0x1234, 0x8000]);
    assert_eq!(ram.double(VPA + offset::LOG_INDEX), 1);
    turn(&mut areas, &ram, Reason::Preempted, [2000, 0, 97, 1 << 33]);
    assert_eq!(ram.word_at(LOG + LOG_ENTRY), 0x0704_0005, "its slice, twice");
    assert_eq!(ram.word_at(LOG + LOG_ENTRY + 4), u32::MAX, "more than fits");
    assert_eq!(ram.double(VPA + offset::READY_TIME), 20 + (1 << 33));
    assert_eq!(ram.double(VPA + offset::WAITED_TIME), 300);
}

#[test]
fn what_was_stolen_before_the_area_was_there_is_not_told() {
    let (ram, mut areas) = guest(4096, 7);
    areas.dispatch(&Turn { processor: 0, now: 9, ready: 0, stolen: 1 << 40, pc: 0, msr: 0 }, &ram);
    assert_eq!((ram.double(VPA + offset::READY_TIME), ram.double(VPA + offset::LOG_INDEX)), (0, 0));
    turn(&mut areas, &ram, Reason::Preempted, [20, 0, 1 << 40, 3]);
    assert_eq!((ram.double(VPA + offset::READY_TIME), ram.double(VPA + offset::LOG_INDEX)), (3, 1));
}

#[test]
fn the_yield_count_is_odd_while_it_has_no_processor() {
    let (ram, mut areas) = guest(0, 0);
    let count = || [offset::YIELD_COUNT, offset::DISPERSION].map(|at| ram.word_at(VPA + at));
    let turn = |processor| Turn { processor, now: 0, ready: 0, stolen: 0, pc: 0, msr: 0 };
    let left = Left { now: 0, stolen: 0 };
    areas.leave(left, &ram);
    assert_eq!(count(), [1, 0]);
    areas.dispatch(&turn(1), &ram);
    assert_eq!(count(), [2, 0]);
    areas.leave(left, &ram);
    areas.dispatch(&turn(1), &ram);
    assert_eq!(count(), [4, 0]);
    areas.leave(left, &ram);
    areas.dispatch(&turn(2), &ram);
    assert_eq!(count(), [6, 1], "on another processor");
}

#[test]
fn the_count_of_dispatches_goes_on_over_a_wait() {
    let (ram, mut areas) = guest(0, 0);
    let count = || ram.word_at(VPA + offset::YIELD_COUNT);
    areas.rest(&ram);
    assert_eq!(count(), 1);
    areas.go_on(&ram);
    assert_eq!(count(), 2);
    // Somebody else got its processor meanwhile.
    areas.rest(&ram);
    areas.leave(Left { now: 0, stolen: 0 }, &ram);
    areas.dispatch(&Turn { processor: 0, now: 1, ready: 1, stolen: 0, pc: 0, msr: 0 }, &ram);
    areas.go_on(&ram);
    assert_eq!(count(), 4, "once");
    assert_eq!(areas.call(DEREGISTER_VPA, 0, &ram), Code::SUCCESS);
    assert_eq!(count(), 5, "nobody counts there any more");
    areas.rest(&ram);
    areas.go_on(&ram);
    assert_eq!(areas.call(DEREGISTER_VPA, 0, &ram), Code::SUCCESS);
    assert_eq!(count(), 5);
    assert_eq!(areas.call(REGISTER_VPA, VPA, &ram), Code::SUCCESS);
    assert_eq!(count(), 6, "it runs while it registers");
}

#[test]
fn all_the_time_of_a_pause_is_stolen_once_whoever_has_the_processor() {
    for others in 0..3 {
        let (ram, mut areas) = guest(4096, 7);
        let counts = || {
            let times = [offset::READY_TIME, offset::WAITED_TIME, offset::LOG_INDEX];
            (ram.word_at(VPA + offset::YIELD_COUNT), times.map(|at| ram.double(VPA + at)))
        };
        let kept = areas.keep(1000, &ram).expect("it has an area");
        assert_eq!(areas.keep(1001, &ram), None);
        (0..others)
            .for_each(|other| turn(&mut areas, &ram, Reason::Waits, [1010 + 100 * other, 50, other, 7]));
        assert_eq!(counts(), (1, [0; 3]), "nothing is told while it lasts");
        areas.go_on_after(kept, &Turn { processor: 2, now: 1500, ready: 0, stolen: 9, pc: 3, msr: 4 }, &ram);
        assert_eq!(counts(), (2, [500, 0, 1]));
        assert_eq!(ram.word_at(LOG), 0x0704_0002, "its time was over");
        turn(&mut areas, &ram, Reason::Waits, [2000, 30, 9, 5]);
        assert_eq!(counts(), (4, [505, 30, 2]), "it goes on as before");
    }
}

#[test]
fn a_vcpu_that_waits_does_so_after_a_pause() {
    let (ram, mut areas) = guest(0, 0);
    let count = || ram.word_at(VPA + offset::YIELD_COUNT);
    areas.rest(&ram);
    let kept = areas.keep(10, &ram).expect("it has an area");
    assert_eq!(count(), 1);
    areas.go_on_after(kept, &Turn { processor: 0, now: 30, ready: 0, stolen: 0, pc: 0, msr: 0 }, &ram);
    assert_eq!((count(), ram.double(VPA + offset::READY_TIME)), (1, 20));
    areas.go_on(&ram);
    assert_eq!(count(), 2);
}

#[test]
fn an_area_lies_in_one_page_and_in_memory() {
    let (ram, mut areas) = (Ram(RefCell::new(vec![0; SIZE])), Areas::default());
    let mut register = |request, address: u64, size| {
        assert!(ram.set_word(address + offset::SIZE, size));
        areas.call(request, address, &ram)
    };
    const VPA_SIZE: u32 = 640 << 16;
    for (address, code) in [
        (0x2000 - 640, Code::SUCCESS),
        (0x2000 - 512, Code::PARAMETER),
        (0x2000 - 128, Code::PARAMETER),
        (0x1040, Code::PARAMETER),
        (SIZE as u64 - 640, Code::SUCCESS),
    ] {
        assert_eq!(register(REGISTER_VPA, address, VPA_SIZE), code, "{address:#x}");
    }
    assert_eq!(register(REGISTER_VPA, VPA, 639 << 16), Code::PARAMETER, "too short");
    assert_eq!(register(REGISTER_SHADOW, 0x2000 - 128, 129), Code::PARAMETER);
    assert_eq!(register(REGISTER_SHADOW, 0x2000 - 128, 128), Code::SUCCESS);
    // A log is as long as it likes, but in memory.
    assert_eq!(register(REGISTER_LOG, 0x1f80, 4096), Code::SUCCESS);
    assert_eq!(register(REGISTER_LOG, SIZE as u64 - 128, 129), Code::PARAMETER);
}

#[test]
fn only_what_the_guest_wants_is_logged() {
    for (mask, logged) in [(0, 0), (1, 1), (2, 2), (3, 3), (4, 0)] {
        let (ram, mut areas) = guest(4096, mask);
        turn(&mut areas, &ram, Reason::Waits, [0, 0, 0, 1]);
        turn(&mut areas, &ram, Reason::Preempted, [0, 0, 1, 1]);
        turn(&mut areas, &ram, Reason::Preempted, [0, 0, 2, 1]);
        assert_eq!(ram.double(VPA + offset::LOG_INDEX), logged, "{mask}");
        assert_eq!(ram.double(VPA + offset::READY_TIME), 3);
    }
}

#[test]
fn another_log_begins_with_its_first_entry() {
    let (ram, mut areas) = guest(4096, 7);
    turn(&mut areas, &ram, Reason::Waits, [0, 0, 0, 1]);
    assert_eq!(areas.call(DEREGISTER_LOG, 0, &ram), Code::SUCCESS);
    turn(&mut areas, &ram, Reason::Waits, [0, 0, 0, 1]);
    assert_eq!(ram.double(VPA + offset::LOG_INDEX), 1, "there is none");
    assert!(ram.set_word(LOG + 0x400 + offset::SIZE, 96));
    assert_eq!(areas.call(REGISTER_LOG, LOG + 0x400, &ram), Code::SUCCESS);
    turn(&mut areas, &ram, Reason::Waits, [50, 0, 0, 1]);
    assert_eq!((ram.double(VPA + offset::LOG_INDEX), ram.double(LOG + 0x410)), (1, 51));
}

proptest! {
    /// However many turns there are, and however long the log: it wraps, and not a byte beside it and the area is written.
    #[test]
    fn nothing_is_written_beside_what_was_registered(size in 48u32..400, turns in 0u64..40) {
        let (ram, mut areas) = guest(size, 7);
        ram.0.borrow_mut()[LOG as usize..].fill(0xa5);
        for number in 0..turns {
            turn(&mut areas, &ram, Reason::Preempted, [100 * number, 0, number, 1]);
        }
        let entries = u64::from(size) / LOG_ENTRY;
        let bytes = ram.0.borrow();
        let end = (LOG + entries * LOG_ENTRY) as usize;
        prop_assert!(bytes[end..].iter().all(|byte| *byte == 0xa5));
        prop_assert!(bytes[..VPA as usize].iter().chain(&bytes[VPA as usize + 640..LOG as usize]).all(|byte| *byte == 0));
        drop(bytes);
        prop_assert_eq!(ram.double(VPA + offset::LOG_INDEX), turns);
        // Each place has the last turn that fell on it.
        for number in turns.saturating_sub(entries)..turns {
            prop_assert_eq!(ram.double(LOG + number % entries * LOG_ENTRY + 16), 100 * number + 1);
        }
    }
}
