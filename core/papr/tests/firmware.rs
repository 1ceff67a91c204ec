// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The firmware's functions and the shared areas, by a guest that may write anything anywhere.

mod common;

use std::cell::RefCell;

use proptest::prelude::*;
use turnstile_papr::Memory;
use turnstile_papr::code::Code;
use turnstile_papr::processors::{Processors, Start, State};
use turnstile_papr::rtas::{self, Function, Services, Then};
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
}

impl Machine {
    fn new() -> Self {
        let processors = Processors::new(2);
        processors.reset(Start { entry: 0, argument: 0, little_endian: true });
        assert!(processors.take_start(0).is_some_and(|start| start.little_endian));
        Self { processors, clock: 1_795_312_321_000_000_007, shown: Vec::new(), stopping: None }
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
