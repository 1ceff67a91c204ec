// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The firmware's services for the interrupt controller (OPAL's `doc/xive.rst`, section IV). None is called on a light exit.

use crate::board::opal;

/// Numbers of services.
mod token {
    pub const RESET: u64 = 128;
    pub const GET_IRQ_INFO: u64 = 129;
    pub const SET_IRQ_CONFIG: u64 = 131;
    pub const GET_QUEUE_INFO: u64 = 132;
    pub const SET_QUEUE_INFO: u64 = 133;
    pub const DONATE_PAGE: u64 = 134;
    pub const ALLOCATE_VP_BLOCK: u64 = 135;
    pub const GET_VP_INFO: u64 = 137;
    pub const SET_VP_INFO: u64 = 138;
    pub const ALLOCATE_IRQ: u64 = 139;
    pub const SYNC: u64 = 141;
}

/// The firmware has other things to do: to be called again.
const BUSY: i64 = -2;
/// The same, and it wants to be polled.
const BUSY_EVENT: i64 = -12;
/// It needs memory ([`donate`]).
const PROVISIONING: i64 = -31;

/// How often it is called again at most: thousands of times what it takes.
const ATTEMPTS: usize = 1_000_000;

/// Why a service was not done: what it answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error(pub i64);

impl Error {
    /// Says whether the firmware wants memory first.
    pub fn wants_memory(self) -> bool {
        self.0 == PROVISIONING
    }
}

/// Calls a service until it is done. Returns what it answers.
///
/// # Safety
/// As for [`opal::call_raw`].
unsafe fn call(token: u64, arguments: &[u64]) -> Result<u64, Error> {
    for _ in 0..ATTEMPTS {
        // SAFETY: the caller's promise.
        match unsafe { opal::call_raw(token, arguments) } {
            BUSY | BUSY_EVENT => {
                opal::poll();
            }
            answer => return u64::try_from(answer).map_err(|_| Error(answer)),
        };
    }
    Err(Error(BUSY))
}

/// Resets the controller, and says that it is used as it is.
pub(super) fn reset() -> Result<(), Error> {
    const EXPLOITATION: u64 = 1;
    // SAFETY: at boot, before anything is configured.
    unsafe { call(token::RESET, &[EXPLOITATION]) }.map(drop)
}

/// Gives the firmware 64 KiB for tables of a chip.
///
/// # Safety
/// The page is aligned, and nobody else's from now on.
pub(super) unsafe fn donate(chip: u32, page: u64) -> Result<(), Error> {
    // SAFETY: the caller's promise.
    unsafe { call(token::DONATE_PAGE, &[chip.into(), page]) }.map(drop)
}

/// Allocates `1 << order` virtual processors. Returns the first one's number; the others follow.
pub(super) fn allocate_processors(order: u32) -> Result<u64, Error> {
    // SAFETY: nothing of the hypervisor is touched.
    unsafe { call(token::ALLOCATE_VP_BLOCK, &[order.into()]) }
}

/// A virtual processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Processor {
    /// What names it in the ring of the CPU where it is resident.
    pub cam: u32,
    /// The controller keeps its ring's words while it is not resident.
    pub keeps: bool,
}

/// Enables a virtual processor whose queues have one escalation between them.
pub(super) fn enable_processor(number: u64) -> Result<Processor, Error> {
    const SAVE_RESTORE: u64 = 4;
    gather_escalations(number)?;
    let (mut flags, mut cam, mut report) = (0u64, 0u64, 0u64);
    let mut chip = 0u32;
    let out = [&raw mut flags as u64, &raw mut cam as u64, &raw mut report as u64, &raw mut chip as u64];
    // SAFETY: the service writes its four results.
    unsafe { call(token::GET_VP_INFO, &[number, out[0], out[1], out[2], out[3]])? };
    let keeps = u64::from_be(flags) & SAVE_RESTORE != 0;
    Ok(Processor { cam: u64::from_be(cam) as u32, keeps })
}

/// Enables a virtual processor, and lets its queues have one escalation between them.
fn gather_escalations(number: u64) -> Result<(), Error> {
    const ENABLED: u64 = 1;
    const SINGLE_ESCALATION: u64 = 2;
    // SAFETY: nothing of the hypervisor is touched.
    unsafe { call(token::SET_VP_INFO, &[number, ENABLED | SINGLE_ESCALATION, 0]) }.map(drop)
}

/// Allocates a source that software triggers. Returns its number.
pub(super) fn allocate_source() -> Result<u32, Error> {
    const ANY_CHIP: u64 = 0xffff_ffff;
    // SAFETY: nothing of the hypervisor is touched.
    unsafe { call(token::ALLOCATE_IRQ, &[ANY_CHIP]) }.map(|number| number as u32)
}

/// Where a source's event state buffer is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Buffer {
    /// The page of management.
    pub management: u64,
    /// The page of triggers; zero if there is none.
    pub trigger: u64,
    /// A store to the page of management ends an interrupt.
    pub store_eoi: bool,
}

/// Returns where a source's event state buffer is.
pub(super) fn buffer(source: u32) -> Result<Buffer, Error> {
    const STORE_EOI: u64 = 2;
    let (mut flags, mut management, mut trigger) = (0u64, 0u64, 0u64);
    let (mut shift, mut chip) = (0u32, 0u32);
    let out = [&raw mut flags as u64, &raw mut management as u64, &raw mut trigger as u64];
    let more = [&raw mut shift as u64, &raw mut chip as u64];
    // SAFETY: the service writes its five results.
    unsafe { call(token::GET_IRQ_INFO, &[source.into(), out[0], out[1], out[2], more[0], more[1]])? };
    let store_eoi = u64::from_be(flags) & STORE_EOI != 0;
    Ok(Buffer { management: u64::from_be(management), trigger: u64::from_be(trigger), store_eoi })
}

/// The priority of a source that goes nowhere.
const MASKED: u8 = 0xff;

/// Sends a source's interrupts to a queue, which gets `number`.
pub(super) fn route(source: u32, processor: u64, priority: u8, number: u32) -> Result<(), Error> {
    // SAFETY: the queue is one that the caller has placed, or none.
    unsafe { call(token::SET_IRQ_CONFIG, &[source.into(), processor, priority.into(), number.into()]) }
        .map(drop)
}

/// Sends a source's interrupts nowhere.
pub(super) fn mask(source: u32) -> Result<(), Error> {
    route(source, 0, MASKED, 0)
}

const QUEUE_ENABLED: u64 = 1;
const QUEUE_ALWAYS_NOTIFY: u64 = 2;
const QUEUE_ESCALATE: u64 = 4;

/// Places a queue of `1 << shift` bytes.
///
/// # Safety
/// The memory is aligned to its size, and the controller's to write to until [`remove_queue`]. It is cleared, or its owner
/// takes the consequences.
pub(super) unsafe fn place_queue(
    processor: u64,
    priority: u8,
    address: u64,
    shift: u8,
    escalates: bool,
) -> Result<(), Error> {
    let flags = QUEUE_ENABLED | QUEUE_ALWAYS_NOTIFY | if escalates { QUEUE_ESCALATE } else { 0 };
    // SAFETY: the caller's promise.
    unsafe { call(token::SET_QUEUE_INFO, &[processor, priority.into(), address, shift.into(), flags]) }
        .map(drop)
}

/// Takes a queue away: the controller writes to its memory no more.
pub(super) fn remove_queue(processor: u64, priority: u8) -> Result<(), Error> {
    // SAFETY: no memory is handed over.
    unsafe { call(token::SET_QUEUE_INFO, &[processor, priority.into(), 0, 0, 0])? };
    // With the queue the firmware forgets where it escalates to. What comes for the one that may be placed there next would wake
    // nobody.
    gather_escalations(processor)
}

/// Returns the source by which a virtual processor's queues escalate.
pub(super) fn escalation(processor: u64, priority: u8) -> Result<u32, Error> {
    let (mut page, mut size, mut end, mut flags) = (0u64, 0u64, 0u64, 0u64);
    let mut source = 0u32;
    let out = [&raw mut page as u64, &raw mut size as u64, &raw mut end as u64, &raw mut source as u64];
    let last = &raw mut flags as u64;
    // SAFETY: the service writes its five results.
    unsafe {
        call(token::GET_QUEUE_INFO, &[processor, priority.into(), out[0], out[1], out[2], out[3], last])?
    };
    Ok(u32::from_be(source))
}

/// Waits until a source's events are in their queue.
pub(super) fn synchronize(source: u32) -> Result<(), Error> {
    const SOURCE_AND_QUEUE: u64 = 3;
    // SAFETY: nothing of the hypervisor is touched.
    unsafe { call(token::SYNC, &[SOURCE_AND_QUEUE, source.into()]) }.map(drop)
}
