// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The driver of SMMUv3, with a model of one that remembers what it is not told to forget.

mod model;

use model::{Kept, Model};
use turnstile_iommu::smmu::{Error, Event, Fault, Kind, MAX_STREAMS, Smmu};

const MEMORY: (u64, u64) = (0x4020_1000, 0x1f_f000);
const END: u64 = MEMORY.0 + MEMORY.1;

fn started(model: &mut Model, streams: u64) -> Smmu {
    Smmu::start(model, streams).unwrap()
}

/// What the driver hands over.
fn faults(smmu: &mut Smmu, model: &mut Model) -> Vec<Fault> {
    let mut found = Vec::new();
    smmu.faults(model, &mut |fault| found.push(fault));
    found
}

#[test]
fn nobody_reaches_anything_before_it_is_allowed_to() {
    for two_levels in [true, false] {
        let mut model = Model { two_levels, ..Model::default() };
        let mut smmu = started(&mut model, 0x100);
        for stream in [0, 8, 0xff, 0x100, 0xffff] {
            assert_eq!(model.access(stream, MEMORY.0, false), None, "{stream:#x}");
        }
        assert_eq!((model.recorded, faults(&mut smmu, &mut model)), (0, vec![]), "and nothing is recorded");
    }
}

#[test]
fn a_stream_reaches_its_memory_and_nothing_else() {
    for two_levels in [true, false] {
        let mut model = Model { two_levels, ..Model::default() };
        let mut smmu = started(&mut model, if two_levels { 0x1_0000 } else { 0x40 });
        // It is asked for before: what the SMMU has read of it is to be forgotten.
        assert_eq!(model.access(0x10, MEMORY.0, true), None);
        smmu.reach(&mut model, 0x10, MEMORY).unwrap();
        for address in [MEMORY.0, MEMORY.0 + 0x1234, END - 1] {
            for write in [false, true] {
                assert_eq!(model.access(0x10, address, write), Some(address), "it is where it is");
            }
            assert_eq!(model.access(0x11, address, false), None, "nobody else");
        }
        for address in [0, MEMORY.0 - 1, END, END + 0x20_0000, MEMORY.0 + (1 << 40), 1 << 47, u64::MAX] {
            assert_eq!(model.access(0x10, address, false), None, "{address:#x}");
        }
    }
}

#[test]
fn each_stream_has_tables_of_its_own() {
    let mut model = Model::default();
    let mut smmu = started(&mut model, 0x1_0000);
    let other = (0x8000_0000, 0x1000);
    smmu.reach(&mut model, 0x10, MEMORY).unwrap();
    smmu.reach(&mut model, 0xfff8, other).unwrap();
    assert_eq!(model.access(0x10, MEMORY.0, true), Some(MEMORY.0));
    assert_eq!(model.access(0xfff8, other.0, true), Some(other.0));
    assert_eq!((model.access(0x10, other.0, true), model.access(0xfff8, MEMORY.0, true)), (None, None));
}

#[test]
fn the_first_fault_of_a_stream_is_told_and_the_others_are_not_recorded() {
    let mut model = Model::default();
    let mut smmu = started(&mut model, 0x40);
    smmu.reach(&mut model, 0x10, MEMORY).unwrap();
    smmu.reach(&mut model, 0x18, MEMORY).unwrap();
    assert_eq!(faults(&mut smmu, &mut model), []);
    for address in [END, END + 8] {
        assert_eq!(model.access(0x10, address, true), None);
    }
    assert_eq!(faults(&mut smmu, &mut model), [Fault { stream: 0x10, address: Some(END) }]);
    let recorded = model.recorded;
    (0..1000).for_each(|_| assert_eq!(model.access(0x10, END, true), None));
    assert_eq!((model.recorded, faults(&mut smmu, &mut model)), (recorded, vec![]), "no flood");
    assert_eq!(model.access(0x10, MEMORY.0, true), Some(MEMORY.0), "what is its own, it reaches");
    assert_eq!(model.access(0x18, 0, true), None);
    assert_eq!(
        faults(&mut smmu, &mut model),
        [Fault { stream: 0x18, address: Some(0) }],
        "each has its first"
    );
}

/// Some events cannot be kept from being recorded (a request for a translation, one with a process's number): they interrupt for a while, and are
/// lost then.
#[test]
fn who_makes_events_for_ever_takes_nobodys_time() {
    let mut model = Model::default();
    let mut smmu = started(&mut model, 0x40);
    smmu.reach(&mut model, 0x10, MEMORY).unwrap();
    for _ in 0..65 {
        assert!(model.interrupts());
        model.record([5 | 0x18 << 32, 0, 0, 0]);
        assert_eq!(faults(&mut smmu, &mut model), []);
    }
    assert!(!model.interrupts());
    assert_eq!(model.access(0x10, END, true), None);
    assert_eq!(faults(&mut smmu, &mut model).len(), 1, "whoever looks is told");
}

#[test]
fn a_flood_before_the_first_look_is_one_fault() {
    let mut model = Model::default();
    let mut smmu = started(&mut model, 0x40);
    smmu.reach(&mut model, 0x10, MEMORY).unwrap();
    for round in 0..3 {
        (0..10_000).for_each(|_| assert_eq!(model.access(0x10, END, true), None));
        assert_eq!(faults(&mut smmu, &mut model).len(), usize::from(round == 0));
        assert!(model.is_quiet(), "no event waits, and what was lost is known");
    }
    smmu.reach(&mut model, 0x18, MEMORY).unwrap();
    assert_eq!(model.access(0x18, END, true), None);
    assert_eq!(faults(&mut smmu, &mut model).len(), 1, "the queue goes on behind its end");
}

#[test]
fn queues_go_round() {
    let mut model = Model { queues: [1, 0], ..Model::default() };
    let mut smmu = started(&mut model, 0x40);
    for stream in 0..10 {
        smmu.reach(&mut model, stream, MEMORY).unwrap();
        assert_eq!(model.access(stream, END, true), None);
        assert_eq!(faults(&mut smmu, &mut model), [Fault { stream, address: Some(END) }]);
    }
}

#[test]
fn a_stream_is_one_functions() {
    let mut model = Model::default();
    let mut smmu = started(&mut model, 0x1000);
    smmu.reach(&mut model, 0x10, MEMORY).unwrap();
    assert_eq!(smmu.reach(&mut model, 0x10, (0x8000_0000, 0x1000)), Err(Error::Taken(0x10)));
    assert_eq!(model.access(0x10, 0x8000_0000, true), None);
    assert_eq!(smmu.reach(&mut model, 0x1000, MEMORY), Err(Error::NoStream(0x1000)));
    for stream in 0x100..0x100 + MAX_STREAMS as u32 - 2 {
        smmu.reach(&mut model, stream, MEMORY).unwrap();
    }
    assert_eq!(smmu.reach(&mut model, 0x200, MEMORY), Err(Error::TooMany));
    assert_eq!(model.access(0x200, MEMORY.0, false), None);
}

/// The memory of a VM: two pieces, the first of which has large pages.
const LENT: [(u64, u64); 2] = [(0x1_0000_0000, 0x4000_0000), (0x8020_0000, 0x20_0000)];

#[test]
fn what_a_stream_is_lent_it_reaches_until_it_is_taken_back() {
    let mut model = Model::default();
    let mut smmu = started(&mut model, 0x100);
    smmu.reach(&mut model, 0x10, MEMORY).unwrap();
    smmu.reach(&mut model, 0x18, (0x9000_0000, 0x1000)).unwrap();
    let room = model.room;
    for life in 0..3 {
        smmu.lend(&mut model, 0x10, &LENT).unwrap();
        for (at, size) in LENT {
            for address in [at, at + 0x1238, at + size - 1] {
                assert_eq!(model.access(0x10, address, true), Some(address), "life {life}");
                assert_eq!(model.access(0x10, address, false), Some(address));
                assert_eq!(model.access(0x18, address, false), None, "nobody else");
            }
            assert_eq!([at - 1, at + size].map(|address| model.access(0x10, address, false)), [None; 2]);
        }
        assert_eq!(model.access(0x10, MEMORY.0, true), Some(MEMORY.0), "its own, too");
        assert_eq!(smmu.lend(&mut model, 0x10, &LENT), Err(Error::Taken(0x10)));
        smmu.take_back(&mut model, 0x10).unwrap();
        for (at, size) in LENT {
            for address in [at, at + 0x1238, at + size - 1] {
                assert_eq!(model.access(0x10, address, true), None, "not by what was cached");
            }
        }
        assert_eq!(model.access(0x10, MEMORY.0, true), Some(MEMORY.0));
        assert_eq!(model.access(0x18, 0x9000_0000, true), Some(0x9000_0000));
        assert_eq!(model.room, room, "its tables are free");
        smmu.take_back(&mut model, 0x10).unwrap();
    }
    assert_eq!(smmu.lend(&mut model, 0x20, &LENT), Err(Error::NoStream(0x20)));
}

/// Who takes memory back is told when that has not come to its end.
#[test]
fn what_is_not_known_to_be_taken_back_is_an_error() {
    let mut model = Model::default();
    let mut smmu = started(&mut model, 0x100);
    smmu.reach(&mut model, 0x10, MEMORY).unwrap();
    smmu.lend(&mut model, 0x10, &LENT).unwrap();
    assert_eq!(model.access(0x10, LENT[0].0, true), Some(LENT[0].0));
    let room = model.room;
    model.refuses = true;
    assert_eq!(smmu.take_back(&mut model, 0x10), Err(Error::Refused));
    assert_eq!(model.room, room, "the tables may be in use");
}

/// Nothing is known then of what the stream reaches: it may be nothing.
#[test]
fn who_lends_is_told_if_the_smmu_does_not_answer() {
    let mut model = Model::default();
    let mut smmu = started(&mut model, 0x100);
    smmu.reach(&mut model, 0x10, MEMORY).unwrap();
    model.refuses = true;
    assert_eq!(smmu.lend(&mut model, 0x10, &LENT), Err(Error::Refused));
    assert_eq!(model.access(0x10, MEMORY.0, true), None);
    assert_eq!(smmu.lend(&mut model, 0x10, &LENT), Err(Error::Taken(0x10)));
}

#[test]
fn without_room_for_tables_nothing_is_lent() {
    for room in 0..6 {
        let mut model = Model::default();
        let mut smmu = started(&mut model, 0x100);
        smmu.reach(&mut model, 0x10, MEMORY).unwrap();
        model.room = room;
        let many: Vec<_> = (0..6).map(|at| (at << 36, 0x1000)).collect();
        assert!(matches!(smmu.lend(&mut model, 0x10, &many), Err(Error::Paging(_))), "{room}");
        assert_eq!(model.room, room);
        assert_eq!(model.access(0x10, 1 << 36, false), None);
        assert_eq!(model.access(0x10, MEMORY.0, false), Some(MEMORY.0));
    }
}

#[test]
fn a_stream_that_has_strayed_stays_silent() {
    let mut model = Model::default();
    let mut smmu = started(&mut model, 0x40);
    smmu.reach(&mut model, 0x10, MEMORY).unwrap();
    assert_eq!(model.access(0x10, END, true), None);
    assert_eq!(faults(&mut smmu, &mut model).len(), 1);
    smmu.lend(&mut model, 0x10, &LENT).unwrap();
    assert_eq!(model.access(0x10, END, true), None);
    smmu.take_back(&mut model, 0x10).unwrap();
    let recorded = model.recorded;
    assert_eq!(model.access(0x10, END, true), None);
    assert_eq!(model.recorded, recorded);
}

#[test]
fn who_gets_no_tables_reaches_nothing() {
    for room in 0..12 {
        let mut model = Model::default();
        let mut smmu = started(&mut model, 0x1_0000);
        model.room = room;
        let reached = smmu.reach(&mut model, 0x10, MEMORY);
        assert_eq!(model.access(0x10, MEMORY.0, true).is_some(), reached.is_ok(), "{room} pages");
        assert_eq!(model.access(0x10, END, true), None);
    }
    let mut none = Model { room: 0, ..Model::default() };
    assert!(Smmu::start(&mut none, 0x40).is_err());
}

#[test]
fn what_an_smmu_lacks_is_said_and_it_is_left_alone() {
    for (bit, what) in [(0, "stage 2"), (3, "64 bits"), (4, "coherent")] {
        let mut model = Model::default();
        model.idr0 &= !(1 << bit);
        let error = Smmu::start(&mut model, 0x40).unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
        assert_eq!(model.writes, 0);
    }
    for (bits, what) in [(0b10 << 24, "at once"), (0b11 << 21, "little-endian")] {
        let mut model = Model::default();
        model.idr0 = model.idr0 & !(0b11 << 24) | bits;
        assert!(Smmu::start(&mut model, 0x40).unwrap_err().to_string().contains(what));
    }
}

#[test]
fn hardware_that_does_not_answer_is_an_error() {
    for kept in [Kept::Cr0, Kept::IrqCtrl, Kept::Gbpa, Kept::Commands] {
        let mut model = Model { kept: Some(kept), ..Model::default() };
        assert!(matches!(Smmu::start(&mut model, 0x40), Err(Error::Stuck(_))), "{kept:?}");
        assert_eq!(model.access(0x10, MEMORY.0, true).is_some(), kept == Kept::Gbpa, "nothing passes");
    }
    let mut model = Model { refuses: true, ..Model::default() };
    assert_eq!(Smmu::start(&mut model, 0x40).err(), Some(Error::Refused));
}

#[test]
fn what_firmware_has_left_counts_no_more() {
    // Caches full of a stage that lets all through, and an error that was never acknowledged.
    let mut model = Model::default();
    model.left_by_firmware(0x10);
    assert_eq!(model.access(0x10, 0x1234, true), Some(0x1234), "before");
    started(&mut model, 0x40);
    assert_eq!(model.access(0x10, 0x1234, true), None);
    assert!(model.checks_translated(), "a device that says its address is translated is no exception");
}

#[test]
fn any_words_are_an_event() {
    let event = |number: u64| Event::decode([number | 0x18 << 32, 1, 0x1234, 2]);
    let kinds = [0x01, 0x07, 0x0b, 0x10, 0x11, 0x12, 0x13];
    for number in 0..=255 {
        let Event { kind, stream, address } = event(number);
        assert_eq!(stream, 0x18);
        assert_eq!(address.is_some(), kinds.contains(&number));
        assert_eq!(kind == Kind::Other(number as u8), !kinds.contains(&number));
    }
    assert_eq!((event(0x10).kind, event(0x13).kind), (Kind::Translation, Kind::Permission));
}
