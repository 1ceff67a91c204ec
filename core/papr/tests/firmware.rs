// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The firmware's functions and the shared areas, by a guest that may write anything anywhere.

mod common;

use std::cell::RefCell;

use proptest::prelude::*;
use turnstile_papr::Memory;
use turnstile_papr::code::Code;
use turnstile_papr::processors::{Processors, Start, State};
use turnstile_papr::rtas::{self, Function, Services, Then, pci};
use turnstile_papr::vpa::{Area, Areas, offset};

use common::Ram;

const SIZE: usize = 0x1_0000;

impl Ram {
    fn new() -> Self {
        Self(RefCell::new(vec![0; SIZE]))
    }

    fn put(&self, address: usize, words: &[u32]) {
        for (at, word) in words.iter().enumerate() {
            assert!(self.set_word((address + 4 * at) as u64, *word));
        }
    }
}

struct Machine {
    processors: Processors,
    clock: u64,
    shown: Vec<u8>,
    /// The state of the first vCPU when it was about to stop.
    stopping: Option<State>,
    /// The configuration space of a function in slot 1.
    space: [u8; 256],
    /// How many of its vectors have a source.
    given: u32,
    /// What was written to its BARs: number, offset, value.
    written: Vec<[u32; 3]>,
}

impl Machine {
    fn new() -> Self {
        let processors = Processors::new(2);
        processors.reset(Start { entry: 0, argument: 0, little_endian: true });
        assert!(processors.take_start(0).is_some_and(|start| start.little_endian));
        Self {
            processors,
            clock: 1_795_312_321_000_000_007,
            shown: Vec::new(),
            stopping: None,
            space: space(),
            given: 0,
            written: Vec::new(),
        }
    }
}

/// A function with a capability of another kind, and eight vectors of MSI-X whose table is in BAR 1.
fn space() -> [u8; 256] {
    let mut space = [0; 256];
    space[0x34] = 0x40;
    space[0x40..0x44].copy_from_slice(&[9, 0x50, 4, 0]);
    space[0x50..0x58].copy_from_slice(&[0x11, 0, 7, 0, 0x01, 0x02, 0, 0]);
    space
}

impl pci::Functions for Machine {
    fn read(&mut self, slot: u64, offset: u32, size: u32) -> Option<u32> {
        let byte = |at: u32| u32::from(self.space.get(at as usize).copied().unwrap_or(0));
        (slot == 1).then(|| (0..size).map(|at| byte(offset + at) << (8 * at)).sum())
    }
    fn write(&mut self, slot: u64, offset: u32, size: u32, value: u32) -> Option<()> {
        for (at, byte) in (offset..).zip(value.to_le_bytes()).take(if slot == 1 { size as usize } else { 0 })
        {
            if let Some(place) = self.space.get_mut(at as usize) {
                *place = byte;
            }
        }
        (slot == 1).then_some(())
    }
    fn write_bar(&mut self, _: u64, bar: u32, offset: u32, value: u32) {
        self.written.push([bar, offset, value]);
    }
    fn give(&mut self, _: u64, count: u32) -> u32 {
        self.given = count.min(4);
        self.given
    }
    fn source(&self, slot: u64, number: u32) -> Option<u32> {
        (slot == 1 && number < self.given).then_some(0x1001 + number)
    }
}

impl Services for Machine {
    fn processors(&self) -> &Processors {
        &self.processors
    }
    fn stopping(&mut self) {
        self.stopping = self.processors.state(0);
    }
    fn memory_size(&self) -> u64 {
        SIZE as u64
    }
    fn clock(&self) -> u64 {
        self.clock
    }
    fn set_clock(&mut self, nanoseconds: u64) {
        self.clock = nanoseconds;
    }
    fn display(&mut self, character: u8) {
        self.shown.push(character);
    }
    fn route(&self, source: u32) -> Option<(u32, u8)> {
        (source == 7).then_some((1, 5))
    }
    fn set_route(&mut self, source: u32, _: u32, _: u8) -> bool {
        source == 7
    }
    fn set_masked(&mut self, source: u32, _: bool) -> bool {
        source == 7
    }
}

/// Calls a function; returns its results.
fn call(
    ram: &Ram,
    machine: &mut Machine,
    function: Function,
    arguments: &[u32],
    results: usize,
) -> (Vec<u32>, Then) {
    let head = [function.token(), arguments.len() as u32, results as u32];
    ram.put(0x100, &[&head[..], arguments].concat());
    let (code, then) = rtas::call(0, 0x100, ram, machine);
    assert_eq!(code, Code::SUCCESS);
    let first = 0x100 + 12 + 4 * arguments.len() as u64;
    ((0..results as u64).map(|at| ram.word(first + 4 * at).unwrap()).collect(), then)
}

const WRONG: u32 = -3i32 as u32;

#[test]
fn functions_do_what_they_say() {
    let (ram, mut machine) = (Ram::new(), Machine::new());
    let (results, _) = call(&ram, &mut machine, Function::GetTimeOfDay, &[], 8);
    assert_eq!(results, [0, 2026, 11, 22, 1, 52, 1, 7]);
    let (results, _) = call(&ram, &mut machine, Function::SetTimeOfDay, &[2000, 2, 29, 12, 0, 0, 0], 1);
    assert_eq!((results[0], machine.clock), (0, 951_825_600_000_000_000));
    let (results, _) = call(&ram, &mut machine, Function::SetTimeOfDay, &[2000, 13, 1, 0, 0, 0, 0], 1);
    assert_eq!(results, [WRONG]);
    call(&ram, &mut machine, Function::DisplayCharacter, &[65], 1);
    assert_eq!(machine.shown, b"A");
    let (results, _) = call(&ram, &mut machine, Function::GetXive, &[7], 3);
    assert_eq!(results, [0, 1, 5]);
    let (results, _) = call(&ram, &mut machine, Function::GetSystemParameter, &[20, 0x400, 100], 1);
    assert_eq!(results, [0]);
    assert!(ram.0.borrow()[0x402..].starts_with(b"MaxEntCap=2,DesMem=0,"));
    assert_eq!(call(&ram, &mut machine, Function::PowerOff, &[u32::MAX, u32::MAX], 1).1, Then::PowerOff);
    assert_eq!(call(&ram, &mut machine, Function::OsTerm, &[0x500], 1).1, Then::Terminated);
}

#[test]
fn vcpus_start_and_stop() {
    let (ram, mut machine) = (Ram::new(), Machine::new());
    let state =
        |machine: &mut Machine, vcpu| call(&ram, machine, Function::QueryCpuStoppedState, &[vcpu], 2).0;
    assert_eq!((state(&mut machine, 0), state(&mut machine, 1)), (vec![0, 2], vec![0, 0]));
    assert_eq!(state(&mut machine, 2)[0], WRONG);
    let (results, then) = call(&ram, &mut machine, Function::StartCpu, &[1, 0x60, 9], 1);
    assert_eq!((results[0], then), (0, Then::Started(1)));
    // Big-endian, though the first one began little-endian.
    let start = Start { entry: 0x60, argument: 9, little_endian: false };
    assert_eq!(machine.processors.take_start(1), Some(start));
    assert_eq!(call(&ram, &mut machine, Function::StartCpu, &[1, 0x60, 9], 1).0, [-1i32 as u32]);
    assert_eq!(call(&ram, &mut machine, Function::StartCpu, &[5, 0x60, 9], 1).0, [WRONG]);
    assert_eq!(call(&ram, &mut machine, Function::StartCpu, &[1, SIZE as u32, 9], 1).0, [WRONG]);
    assert_eq!(machine.stopping, None);
    assert_eq!(call(&ram, &mut machine, Function::StopSelf, &[], 1).1, Then::Stopped);
    assert_eq!(machine.stopping, Some(State::Running), "nobody can start it before that");
    assert_eq!(state(&mut machine, 0), [0, 0]);
}

#[test]
fn areas_have_an_order() {
    const VPA: u64 = 1 << 45;
    let (ram, mut areas) = (Ram::new(), Areas::default());
    ram.put(0x1000, &[0, 640 << 16]);
    ram.put(0x2000, &[0, 100]);
    assert_eq!(areas.call(2 * VPA, 0x2000, &ram), Code::RESOURCE, "the log needs the area");
    assert_eq!(areas.call(VPA, 0x1000, &ram), Code::SUCCESS);
    assert_eq!(areas.vpa, Some(Area { address: 0x1000, size: 640 }));
    assert_eq!(ram.0.borrow()[0x1000 + offset::STATUS as usize], 2);
    assert_eq!(areas.call(2 * VPA, 0x2000, &ram), Code::SUCCESS);
    assert_eq!(areas.log, Some(Area { address: 0x2000, size: 96 }), "whole entries");
    assert_eq!(areas.call(5 * VPA, 0, &ram), Code::RESOURCE, "the area goes last");
    assert_eq!(areas.call(6 * VPA, 0, &ram), Code::SUCCESS);
    assert_eq!(areas.call(5 * VPA, 0, &ram), Code::SUCCESS);
    assert_eq!(areas, Areas::default());
    for wrong in [0, 0x1040, 0xff80, SIZE as u64, !127] {
        assert_eq!(areas.call(VPA, wrong, &ram), Code::PARAMETER, "{wrong:#x}");
    }
    assert_eq!(areas.call(VPA | 1, 0x1000, &ram), Code::PARAMETER);
    assert_eq!(areas.call(4 * VPA, 0x1000, &ram), Code::PARAMETER);
}

proptest! {
    /// Whatever is in memory and in the registers: an answer, and areas inside memory.
    #[test]
    fn nothing_that_a_guest_writes_matters_to_others(
        words in prop::collection::vec(prop_oneof![0u32..20, 0x2000u32..0x2010, any::<u32>()], 20),
        address in prop_oneof![0u64..SIZE as u64, any::<u64>()],
        flags in prop_oneof![(0u64..8).prop_map(|function| function << 45), any::<u64>()],
    ) {
        let (ram, mut machine, mut areas) = (Ram::new(), Machine::new(), Areas::default());
        let at = (address as usize).min(SIZE - 80) & !3;
        ram.put(at, &words);
        let _ = rtas::call(0, at as u64, &ram, &mut machine);
        let _ = rtas::call(1, address, &ram, &mut machine);
        for area in [address, at as u64 & !127] {
            let _ = areas.call(flags, area, &ram);
        }
        for area in [areas.vpa, areas.shadow, areas.log].into_iter().flatten() {
            prop_assert!(area.address + area.size <= SIZE as u64);
        }
    }
}

/// The unit of the host bridge, as arguments.
const UNIT: [u32; 2] = [(pci::UNIT >> 32) as u32, pci::UNIT as u32];
/// The function in slot 1.
const PLACE: u32 = 1 << 11;
/// Asks for message-signalled interrupts.
fn change(machine: &mut Machine, place: u32, [ask, count, sequence]: [u32; 3]) -> Vec<u32> {
    let arguments = [place, UNIT[0], UNIT[1], ask, count, sequence];
    call(&Ram::new(), machine, Function::ChangeMsi, &arguments, 4).0
}

#[test]
fn configuration_is_read_and_written() {
    let (ram, mut machine) = (Ram::new(), Machine::new());
    let mut of =
        |function, arguments: &[u32], results| call(&ram, &mut machine, function, arguments, results).0;
    let read = |place, size| [place, UNIT[0], UNIT[1], size];
    assert_eq!(of(Function::IbmReadPciConfig, &read(PLACE | 0x50, 4), 2), [0, 0x0007_0011]);
    assert_eq!(of(Function::ReadPciConfig, &[PLACE | 0x52, 2], 2), [0, 7]);
    assert_eq!(
        of(Function::IbmReadPciConfig, &read(PLACE | 0x50 | 1 << 28, 4), 2),
        [0, 0],
        "an extended register"
    );
    assert_eq!(of(Function::WritePciConfig, &[PLACE | 4, 2, 6], 1), [0]);
    assert_eq!(of(Function::IbmWritePciConfig, &[PLACE | 0x3c, UNIT[0], UNIT[1], 1, 9], 1), [0]);
    assert_eq!(of(Function::ReadPciConfig, &[PLACE | 4, 4], 2), [0, 6]);
    assert_eq!(of(Function::ReadPciConfig, &[PLACE | 0x3c, 1], 2), [0, 9]);
    // The host bridge, another slot, number, bus, unit, size, place.
    for (place, size) in [
        (0, 4),
        (2 << 11, 4),
        (PLACE | 1 << 8, 4),
        (PLACE | 1 << 16, 4),
        (PLACE, 3),
        (PLACE, 0),
        (PLACE | 2, 4),
    ] {
        assert_eq!(of(Function::ReadPciConfig, &[place, size], 2)[0], WRONG, "{place:#x} {size}");
        assert_eq!(of(Function::IbmReadPciConfig, &read(place, size), 2)[0], WRONG);
        assert_eq!(of(Function::WritePciConfig, &[place, size, 0], 1)[0], WRONG);
    }
    assert_eq!(of(Function::IbmReadPciConfig, &[PLACE, UNIT[0], 0, 4], 2)[0], WRONG);
}

#[test]
fn messages_are_given_and_taken_back() {
    let mut machine = Machine::new();
    assert_eq!(change(&mut machine, PLACE, [4, 2, 1]), [0, 2, 2, 2]);
    assert_eq!(machine.space[0x53], 0x80, "MSI-X is enabled");
    let address = [pci::MESSAGE as u32, (pci::MESSAGE >> 32) as u32];
    let entry = |at, data| [[1, at, address[0]], [1, at + 4, address[1]], [1, at + 8, data]];
    assert_eq!(machine.written, [entry(0x200, 0x1001), entry(0x210, 0x1002)].concat());
    let query = |machine: &mut Machine, number| {
        let arguments = [PLACE, UNIT[0], UNIT[1], number];
        call(&Ram::new(), machine, Function::QueryInterruptSource, &arguments, 3).0
    };
    assert_eq!(query(&mut machine, 1), [0, 0x1002, 1]);
    assert_eq!(query(&mut machine, 2)[0], WRONG);
    assert_eq!(change(&mut machine, PLACE, [4, 100, 1])[..2], [0, 4], "no more than there are");
    // MSI is not there, but giving back by it is how Linux does it.
    for wrong in [[3, 1, 1], [4, 1, 2], [0, 1, 1], [2, 1, 1], [5, 0, 1], [u32::MAX; 3]] {
        assert_eq!(change(&mut machine, PLACE, wrong)[0], WRONG, "{wrong:?}");
    }
    assert_eq!(change(&mut machine, 2 << 11, [4, 1, 1])[0], WRONG);
    assert_eq!(machine.given, 4, "nothing has changed");
    assert_eq!(change(&mut machine, PLACE, [3, 0, 1])[..2], [0, 0]);
    assert_eq!((machine.space[0x53], query(&mut machine, 0)[0]), (0, WRONG));
}

#[test]
fn capabilities_that_lead_nowhere_end() {
    let mut machine = Machine::new();
    // A circle.
    machine.space[0x41] = 0x40;
    assert_eq!(change(&mut machine, PLACE, [4, 1, 1])[0], WRONG);
    machine.space.fill(0xff);
    assert_eq!(change(&mut machine, PLACE, [4, 1, 1])[0], WRONG);
}
