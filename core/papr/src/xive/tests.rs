// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls against a machine that notes what it is told; and against random arguments.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::code::Code;
use crate::hcall::Hcall;

const SERVERS: usize = 3;
const TERMINAL: u32 = 0x1000;
const RAM: u64 = 1 << 24;

/// What the machine has been told, and what is wrong with it.
#[derive(Default)]
struct Noted {
    routes: BTreeMap<u32, Route>,
    queues: BTreeMap<(u32, u8), Queue>,
    stored: Vec<(u32, u64, u64)>,
    synchronized: Vec<u32>,
    refuses: bool,
}

impl Machine for Noted {
    fn route(&mut self, source: u32, to: Option<Route>) -> Result<(), Failure> {
        assert!(exists(source.into()));
        if self.refuses {
            return Err(Failure::Hardware);
        }
        match to {
            Some(route) => {
                assert!(
                    (route.server as usize) < SERVERS
                        && route.priority < PRIORITIES
                        && route.number >> 31 == 0
                );
                self.routes.insert(source, route);
            }
            None => drop(self.routes.remove(&source)),
        }
        Ok(())
    }

    fn place(&mut self, server: u32, priority: u8, queue: Option<Queue>) -> Result<(), Failure> {
        assert!((server as usize) < SERVERS && priority < PRIORITIES);
        if self.refuses {
            return Err(Failure::Hardware);
        }
        match queue {
            Some(queue) => {
                assert!(queue.address % (1 << queue.shift) == 0 && [12, 16].contains(&queue.shift));
                if queue.address.checked_add(1 << queue.shift).is_none_or(|end| end > RAM) {
                    return Err(Failure::Address);
                }
                self.queues.insert((server, priority), queue);
            }
            None => drop(self.queues.remove(&(server, priority))),
        }
        Ok(())
    }

    fn load(&mut self, source: u32, offset: u64) -> u64 {
        assert!(exists(source.into()) && offset < 1 << PAGE_SHIFT);
        offset >> 8 & 3
    }

    fn store(&mut self, source: u32, offset: u64, value: u64) {
        assert!(exists(source.into()) && offset < 1 << PAGE_SHIFT);
        self.stored.push((source, offset, value));
    }

    fn synchronize(&mut self, source: u32) {
        assert!(exists(source.into()));
        self.synchronized.push(source);
    }
}

fn exists(source: u64) -> bool {
    source < SERVERS as u64 || source == u64::from(TERMINAL)
}

fn tables() -> Tables {
    let management = |source| u64::from(source) << 17;
    let trigger = |source| (u64::from(source) << 17) + (1 << 16);
    let sources = (0..SERVERS as u32).chain([TERMINAL]);
    Tables::new(SERVERS, sources, Layout { management, trigger, store_eoi: false })
}

/// A partition and its machine.
struct Bench {
    tables: Tables,
    machine: Noted,
}

impl Bench {
    fn new() -> Self {
        Self { tables: tables(), machine: Noted::default() }
    }

    fn call(&mut self, call: Hcall, arguments: &[u64]) -> Reply {
        let mut all = [0; 5];
        all[..arguments.len()].copy_from_slice(arguments);
        super::call(&mut self.tables, &mut self.machine, call, &all)
    }

    fn code(&mut self, call: Hcall, arguments: &[u64]) -> Code {
        self.call(call, arguments).code
    }
}

#[test]
fn a_source_is_found_where_the_layout_has_it() {
    let mut bench = Bench::new();
    let reply = bench.call(Hcall::IntGetSourceInfo, &[0, 2]);
    assert_eq!(reply, [0, 2 << 17, (2 << 17) + 0x1_0000, 16].into());
    assert_eq!(bench.code(Hcall::IntGetSourceInfo, &[1, 2]), Code::PARAMETER);
    assert_eq!(bench.code(Hcall::IntGetSourceInfo, &[0, 3]), Code::P2);
    assert_eq!(bench.code(Hcall::IntGetSourceInfo, &[0, 1 << 32]), Code::P2, "no number is cut short");
}

#[test]
fn a_source_goes_where_a_queue_is() {
    let mut bench = Bench::new();
    assert_eq!(bench.code(Hcall::IntSetSourceConfig, &[2, 1, 2, 6, 77]), Code::P4, "no queue");
    assert_eq!(bench.code(Hcall::IntSetQueueConfig, &[1, 2, 6, 0x2_0000, 16]), Code::SUCCESS);
    assert_eq!(bench.code(Hcall::IntSetSourceConfig, &[2, 1, 2, 6, 77]), Code::SUCCESS);
    assert_eq!(bench.machine.routes[&1], Route { server: 2, priority: 6, number: 77 });
    assert_eq!(bench.call(Hcall::IntGetSourceConfig, &[0, 1]), [2, 6, 77, 0].into());
    assert_eq!(bench.call(Hcall::IntGetQueueConfig, &[0, 2, 6]), [1, 0x2_0000, 16, 0].into());
    assert_eq!(bench.call(Hcall::IntGetQueueInfo, &[0, 2, 6]), [u64::MAX, 16, 0, 0].into());
    assert_eq!(bench.code(Hcall::IntSetSourceConfig, &[0, 1, 2, 6, 5]), Code::SUCCESS, "keeps its number");
    assert_eq!(bench.machine.routes[&1].number, 77);
    assert_eq!(bench.code(Hcall::IntSetSourceConfig, &[0, 1, 99, 0xff]), Code::SUCCESS, "masked: no server");
    assert_eq!(bench.machine.routes.get(&1), None);
    assert_eq!(bench.call(Hcall::IntGetSourceConfig, &[0, 1]), [0, 0xff, 77, 0].into());
}

#[test]
fn wrong_arguments_have_their_codes() {
    let mut bench = Bench::new();
    assert_eq!(bench.code(Hcall::IntSetQueueConfig, &[1, 0, 0, 0x1000, 12]), Code::SUCCESS);
    for (call, arguments, code) in [
        (Hcall::IntSetSourceConfig, [4, 0, 0, 0, 0], Code::PARAMETER),
        (Hcall::IntSetSourceConfig, [0, 9, 0, 0, 0], Code::P2),
        (Hcall::IntSetSourceConfig, [0, 0, 3, 0, 0], Code::P3),
        (Hcall::IntSetSourceConfig, [0, 0, 0, 7, 0], Code::P4),
        (Hcall::IntSetSourceConfig, [2, 0, 0, 0, 1 << 31], Code::P5),
        (Hcall::IntSetQueueConfig, [2, 0, 0, 0, 12], Code::PARAMETER),
        (Hcall::IntSetQueueConfig, [0, 0, 0, 0, 12], Code::PARAMETER),
        (Hcall::IntSetQueueConfig, [1, 3, 0, 0, 12], Code::P2),
        (Hcall::IntSetQueueConfig, [1, 0, 7, 0, 12], Code::P3),
        (Hcall::IntSetQueueConfig, [1, 0, 0, 0x800, 12], Code::P4),
        (Hcall::IntSetQueueConfig, [1, 0, 0, RAM, 12], Code::P4),
        (Hcall::IntSetQueueConfig, [1, 0, 0, 0, 13], Code::P5),
        (Hcall::IntSetQueueConfig, [1, 0, 0, 0, 76], Code::P5),
        (Hcall::IntGetQueueInfo, [0, 3, 0, 0, 0], Code::P2),
        (Hcall::IntGetQueueConfig, [0, 0, 7, 0, 0], Code::P3),
        (Hcall::IntEsb, [2, 0, 0, 0, 0], Code::PARAMETER),
        (Hcall::IntEsb, [0, 0, 0x1_0000, 0, 0], Code::P3),
        (Hcall::IntEsb, [0, 0, 4, 0, 0], Code::P3),
        (Hcall::IntSync, [0, 9, 0, 0, 0], Code::P2),
        (Hcall::IntReset, [1, 0, 0, 0, 0], Code::PARAMETER),
        (Hcall::IntSetOsReportingLine, [0; 5], Code::FUNCTION),
        (Hcall::Cede, [0; 5], Code::FUNCTION),
    ] {
        assert_eq!(bench.code(call, &arguments), code, "{call:?} {arguments:x?}");
    }
}

#[test]
fn what_the_machine_refuses_is_not_noted() {
    let mut bench = Bench::new();
    assert_eq!(bench.code(Hcall::IntSetQueueConfig, &[1, 0, 0, 0x1000, 12]), Code::SUCCESS);
    bench.machine.refuses = true;
    assert_eq!(bench.code(Hcall::IntSetSourceConfig, &[2, 0, 0, 0, 5]), Code::HARDWARE);
    assert_eq!(bench.code(Hcall::IntSetQueueConfig, &[1, 1, 1, 0x2000, 12]), Code::HARDWARE);
    assert_eq!((bench.tables.route(0), bench.tables.queue(1, 1)), (None, None));
}

#[test]
fn a_reset_leaves_nothing() {
    let mut bench = Bench::new();
    for server in 0..SERVERS as u64 {
        assert_eq!(bench.code(Hcall::IntSetQueueConfig, &[1, server, server, 0x1_0000, 16]), Code::SUCCESS);
        assert_eq!(bench.code(Hcall::IntSetSourceConfig, &[2, server, server, server, 40]), Code::SUCCESS);
    }
    assert_eq!(bench.code(Hcall::IntReset, &[]), Code::SUCCESS);
    assert!(bench.machine.routes.is_empty() && bench.machine.queues.is_empty());
    assert_eq!(bench.call(Hcall::IntGetQueueConfig, &[0, 1, 1]), [0; 4].into());
    assert_eq!(bench.call(Hcall::IntGetSourceConfig, &[0, 1]), [0, 0xff, 1, 0].into());
}

#[test]
fn a_queue_that_the_machine_keeps_is_not_forgotten() {
    let mut bench = Bench::new();
    assert_eq!(bench.code(Hcall::IntSetQueueConfig, &[1, 0, 0, 0x1000, 12]), Code::SUCCESS);
    assert_eq!(bench.code(Hcall::IntSetQueueConfig, &[1, 1, 3, 0x2000, 12]), Code::SUCCESS);
    bench.machine.refuses = true;
    assert_eq!(bench.code(Hcall::IntReset, &[]), Code::HARDWARE);
    assert!(bench.tables.reset(&mut bench.machine).is_err(), "the guest's own attempt does not make it good");
    bench.machine.refuses = false;
    assert!(bench.tables.reset(&mut bench.machine).is_ok());
    assert!(bench.machine.queues.is_empty());
}

#[test]
fn a_source_is_managed_by_call() {
    let mut bench = Bench::new();
    assert_eq!(bench.call(Hcall::IntEsb, &[0, TERMINAL.into(), 0xd00]), [1, 0, 0, 0].into());
    assert_eq!(bench.call(Hcall::IntEsb, &[1, TERMINAL.into(), 0x400, 9]), [u64::MAX, 0, 0, 0].into());
    assert_eq!(bench.machine.stored, [(TERMINAL, 0x400, 9)]);
    assert_eq!(bench.code(Hcall::IntSync, &[0, 2]), Code::SUCCESS);
    assert_eq!(bench.machine.synchronized, [2]);
}

/// An argument that is right more often than not.
fn argument() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0..9u64, 2 => Just(0xff), 2 => (0..300u64).prop_map(|page| page << 12), 2 => Just(12), 2 => Just(16), 1 => any::<u64>()]
}

proptest! {
    /// The machine asserts that it is told only what may be, and always has what the tables say.
    #[test]
    fn tables_and_machine_agree(calls in proptest::collection::vec((0..Hcall::ALL.len(), proptest::array::uniform5(argument())), 0..60)) {
        let mut bench = Bench::new();
        for (call, arguments) in calls {
            let _ = bench.call(Hcall::ALL[call], &arguments);
            for source in (0..SERVERS as u32).chain([TERMINAL]) {
                prop_assert_eq!(bench.tables.route(source), bench.machine.routes.get(&source).copied());
            }
            for server in 0..SERVERS as u32 {
                for priority in 0..8 {
                    prop_assert_eq!(bench.tables.queue(server, priority), bench.machine.queues.get(&(server, priority)).copied());
                }
            }
        }
    }
}
