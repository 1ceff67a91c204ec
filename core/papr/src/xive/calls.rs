// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The calls: what their arguments have to be, and what they answer.

use super::tables::{MASKED, PAGE_SHIFT, PRIORITIES};
use super::{Failure, Machine, Queue, Route, Tables};
use crate::code::Code;
use crate::hcall::Hcall;

/// What a call has in R4 to R8.
pub type Arguments = [u64; 5];

/// What a call answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// R3.
    pub code: Code,
    /// R4 to R7.
    pub values: [u64; 4],
}

impl From<Code> for Reply {
    fn from(code: Code) -> Self {
        Self { code, values: [0; 4] }
    }
}

impl From<[u64; 4]> for Reply {
    fn from(values: [u64; 4]) -> Self {
        Self { code: Code::SUCCESS, values }
    }
}

/// A source's flags: stores to its page of management end an interrupt.
const STORE_EOI: u64 = 1;
/// H_INT_SET_SOURCE_CONFIG: R8 is the number that is written to the queue.
const SET_NUMBER: u64 = 1 << 1;
/// H_INT_SET_SOURCE_CONFIG: the source goes nowhere.
const MASK: u64 = 1;
/// H_INT_SET_QUEUE_CONFIG, H_INT_GET_QUEUE_CONFIG: every event notifies, so that queues have no state of their own to end.
const ALWAYS_NOTIFY: u64 = 1;
/// H_INT_ESB: store, instead of load.
const STORE: u64 = 1;
/// What is written to a queue has this many bits: the highest one says in which round of the queue it was written.
const NUMBER_BITS: u32 = 31;
/// The sizes that queues may have: no larger than what is sure to be one piece of the machine's memory.
const QUEUE_SHIFTS: [u64; 2] = [12, 16];

type Answer = Result<Reply, Code>;

/// Carries out a call; all others than those of XIVE are not known.
pub fn call(tables: &mut Tables, machine: &mut impl Machine, call: Hcall, arguments: &Arguments) -> Reply {
    match call {
        Hcall::IntGetSourceInfo => source_info(tables, arguments),
        Hcall::IntSetSourceConfig => set_source(tables, machine, arguments),
        Hcall::IntGetSourceConfig => source(tables, arguments),
        Hcall::IntGetQueueInfo => queue_info(tables, arguments),
        Hcall::IntSetQueueConfig => set_queue(tables, machine, arguments),
        Hcall::IntGetQueueConfig => queue(tables, arguments),
        Hcall::IntEsb => event(tables, machine, arguments),
        Hcall::IntSync => synchronize(tables, machine, arguments),
        Hcall::IntReset => reset(tables, machine, arguments),
        _ => Err(Code::FUNCTION),
    }
    .unwrap_or_else(Reply::from)
}

impl From<Failure> for Code {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Address => Code::P4,
            Failure::Hardware => Code::HARDWARE,
        }
    }
}

/// Checks that no other flags than `known` are set.
fn flags(flags: u64, known: u64) -> Result<(), Code> {
    if flags & !known == 0 { Ok(()) } else { Err(Code::PARAMETER) }
}

/// Returns a priority that the guest may use.
fn priority(priority: u64, otherwise: Code) -> Result<u8, Code> {
    if priority < u64::from(PRIORITIES) { Ok(priority as u8) } else { Err(otherwise) }
}

fn source_info(tables: &Tables, &[options, lisn, ..]: &Arguments) -> Answer {
    flags(options, 0)?;
    let lisn = tables.source(lisn).ok_or(Code::P2)?.lisn;
    // A page of its own triggers: whoever may only trigger is given that page alone.
    let features = if tables.layout.store_eoi { STORE_EOI } else { 0 };
    Ok([features, (tables.layout.management)(lisn), (tables.layout.trigger)(lisn), PAGE_SHIFT.into()].into())
}

fn set_source(tables: &mut Tables, machine: &mut impl Machine, arguments: &Arguments) -> Answer {
    let &[options, lisn, target, level, number] = arguments;
    flags(options, SET_NUMBER | MASK)?;
    let source = *tables.source(lisn).ok_or(Code::P2)?;
    let number = if options & SET_NUMBER == 0 { source.number } else { set_number(number)? };
    let goes = options & MASK == 0 && level != u64::from(MASKED);
    let route = if goes {
        let server = tables.server(target).ok_or(Code::P3)?;
        Some(Route { server, priority: priority(level, Code::P4)?, number })
    } else {
        None
    };
    if let Some(route) = route {
        // What has no queue would be lost.
        tables.queue(route.server, route.priority).ok_or(Code::P4)?;
    }
    machine.route(source.lisn, route)?;
    if let Some(source) = tables.source_mut(lisn) {
        source.number = number;
        (source.server, source.priority) = route.map_or((0, MASKED), |route| (route.server, route.priority));
    }
    Ok(Code::SUCCESS.into())
}

fn set_number(number: u64) -> Result<u32, Code> {
    if number >> NUMBER_BITS == 0 { Ok(number as u32) } else { Err(Code::P5) }
}

fn source(tables: &Tables, &[options, lisn, ..]: &Arguments) -> Answer {
    flags(options, 0)?;
    let source = tables.source(lisn).ok_or(Code::P2)?;
    Ok([source.server.into(), source.priority.into(), source.number.into(), 0].into())
}

fn queue_info(tables: &Tables, &[options, target, level, ..]: &Arguments) -> Answer {
    flags(options, 0)?;
    let server = tables.server(target).ok_or(Code::P2)?;
    let priority = priority(level, Code::P3)?;
    // Every event notifies: there is no page by which notifications would be ended.
    let shift = tables.queue(server, priority).map_or(0, |queue| queue.shift);
    Ok([u64::MAX, shift.into(), 0, 0].into())
}

fn set_queue(tables: &mut Tables, machine: &mut impl Machine, arguments: &Arguments) -> Answer {
    let &[options, target, level, address, shift] = arguments;
    flags(options, ALWAYS_NOTIFY)?;
    let server = tables.server(target).ok_or(Code::P2)?;
    let priority = priority(level, Code::P3)?;
    let queue = if shift == 0 {
        None
    } else {
        if !QUEUE_SHIFTS.contains(&shift) {
            return Err(Code::P5);
        }
        if !address.is_multiple_of(1 << shift) {
            return Err(Code::P4);
        }
        if options & ALWAYS_NOTIFY == 0 {
            return Err(Code::PARAMETER);
        }
        Some(Queue { address, shift: shift as u8 })
    };
    machine.place(server, priority, queue)?;
    tables.set_queue(server, priority, queue);
    Ok(Code::SUCCESS.into())
}

fn queue(tables: &Tables, &[options, target, level, ..]: &Arguments) -> Answer {
    flags(options, 0)?;
    let server = tables.server(target).ok_or(Code::P2)?;
    let priority = priority(level, Code::P3)?;
    Ok(match tables.queue(server, priority) {
        Some(queue) => [ALWAYS_NOTIFY, queue.address, queue.shift.into(), 0].into(),
        None => [0; 4].into(),
    })
}

fn event(
    tables: &Tables,
    machine: &mut impl Machine,
    &[options, lisn, offset, data, _]: &Arguments,
) -> Answer {
    flags(options, STORE)?;
    let lisn = tables.source(lisn).ok_or(Code::P2)?.lisn;
    if offset >= 1 << PAGE_SHIFT || !offset.is_multiple_of(8) {
        return Err(Code::P3);
    }
    if options & STORE == 0 {
        return Ok([machine.load(lisn, offset), 0, 0, 0].into());
    }
    machine.store(lisn, offset, data);
    Ok([u64::MAX, 0, 0, 0].into())
}

fn synchronize(tables: &Tables, machine: &mut impl Machine, &[options, lisn, ..]: &Arguments) -> Answer {
    flags(options, 0)?;
    machine.synchronize(tables.source(lisn).ok_or(Code::P2)?.lisn);
    Ok(Code::SUCCESS.into())
}

fn reset(tables: &mut Tables, machine: &mut impl Machine, &[options, ..]: &Arguments) -> Answer {
    flags(options, 0)?;
    tables.reset(machine)?;
    Ok(Code::SUCCESS.into())
}
