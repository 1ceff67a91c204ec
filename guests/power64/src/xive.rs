// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The interrupt controller of POWER9 and later, exploited directly: sources are triggered and ended by accesses to their
//! pages, events come through a queue in memory, the presentation is a page of the CPU's (LoPAR, appendix on XIVE
//! exploitation mode).

use core::arch::asm;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::hcall::{self, call, call4};
use crate::platform::{Controller, MAX_CPUS, Xive, platform};
use crate::{cpu, events, mmio, println};

/// The priority of all events here. The highest number belongs to the hypervisor, for escalations.
pub const PRIORITY: u64 = 6;
/// Bytes of a queue: 64 KiB, the one size that all hypervisors have.
const QUEUE: usize = 64 << 10;
const QUEUE_SHIFT: u64 = 16;
/// Entries of a queue.
const ENTRIES: u64 = (QUEUE / 4) as u64;

/// Offsets in the page of a source.
pub mod esb {
    /// Reading ends an interrupt, and says whether another came meanwhile.
    pub const LOAD_EOI: u64 = 0;
    /// Reading tells the state.
    pub const GET: u64 = 0x800;
    /// Reading sets the state to ready, and tells the old one.
    pub const SET_READY: u64 = 0xc00;
    /// Reading sets the state to off, and tells the old one.
    pub const SET_OFF: u64 = 0xd00;
}

/// Offsets in the operating system's page of the presentation.
pub mod tima {
    /// Priority that interrupts have to be favored above; one byte.
    pub const CPPR: u64 = 0x11;
    /// Reading accepts the interrupt presented; 16 bits: what it is, and the new priority.
    pub const ACK: u64 = 0x810;
}

/// Set in what [`tima::ACK`] returns if there was an interrupt.
const NSR_EXCEPTION: u16 = 0x8000;

#[repr(C, align(65536))]
struct Queue(UnsafeCell<[u32; QUEUE / 4]>);

// SAFETY: written by the interrupt controller, and read by one CPU through addresses only.
unsafe impl Sync for Queue {}

static QUEUES: [Queue; MAX_CPUS] = [const { Queue(UnsafeCell::new([0; QUEUE / 4])) }; MAX_CPUS];

/// Sources here: interrupts between CPUs, by their CPU's number, and behind them those of devices.
const SOURCES: usize = MAX_CPUS + 32;

/// Pages of each source: to trigger, and to manage.
static TRIGGERS: [AtomicU64; SOURCES] = [const { AtomicU64::new(0) }; SOURCES];
static MANAGEMENT: [AtomicU64; SOURCES] = [const { AtomicU64::new(0) }; SOURCES];

/// What the device tree says about it.
///
/// # Panics
/// If the machine has another controller.
pub fn facts() -> Xive {
    match platform().controller {
        Controller::Xive(facts) => facts,
        _ => panic!("this machine has no XIVE"),
    }
}

/// Returns the logical interrupt source number of the CPU with this number.
pub fn source(index: usize) -> u64 {
    u64::from(facts().first_source) + index as u64
}

/// Returns the page that triggers the interrupt of the CPU with this number.
pub fn trigger_page(index: usize) -> u64 {
    TRIGGERS[index % MAX_CPUS].load(Relaxed)
}

/// Returns the page that manages the interrupt of the CPU with this number.
pub fn management_page(index: usize) -> u64 {
    MANAGEMENT[index % MAX_CPUS].load(Relaxed)
}

/// Returns the address of the queue of the CPU with this number.
pub fn queue(index: usize) -> u64 {
    QUEUES[index % MAX_CPUS].0.get() as u64
}

/// Asks for exploitation mode, and for radix translation, as a client program does through its firmware: where there is no
/// firmware, as on QEMU's own partition, by the call that the firmware makes (LoPAR, section B.6.2.3).
fn negotiate() {
    /// Where the fifth option vector begins, and bytes of all.
    const FIFTH: usize = 24 + 1 + 4 * 2;
    /// POWER9 and POWER10; then five option vectors, of which the fifth is the one that counts.
    const VECTORS: [u8; FIFTH + 28] = {
        let mut bytes = [0; FIFTH + 28];
        let processors: [u32; 6] = [0xffff_0000, 0x004e_0000, 0xffff_0000, 0x0080_0000, 0, u32::MAX];
        let mut index = 0;
        while index < 24 {
            bytes[index] = processors[index / 4].to_be_bytes()[index % 4];
            index += 1;
        }
        // Numbers and lengths are told less one.
        bytes[24] = 4;
        bytes[FIFTH] = 26;
        // Exploitation; radix.
        bytes[FIFTH + 23] = 0x40;
        bytes[FIFTH + 24] = 0x40;
        bytes
    };
    let room = queue(0);
    call(hcall::CAS, [VECTORS.as_ptr() as u64, room, QUEUE as u64, 0]);
}

/// Sets up a source and a queue for each CPU; returns whether the hypervisor agreed.
pub fn init() -> bool {
    let mut status = call(hcall::INT_RESET, [0; 4]);
    if status == hcall::FUNCTION {
        negotiate();
        status = call(hcall::INT_RESET, [0; 4]);
    }
    let mut good = status == hcall::SUCCESS;
    for index in 0..platform().cpus.as_slice().len() {
        good &= init_one(index);
    }
    if !good {
        println!("@error XIVE cannot be set up");
    }
    good
}

fn init_one(index: usize) -> bool {
    let target = u64::from(platform().server(index));
    let address = queue(index);
    for offset in (0..QUEUE as u64).step_by(8) {
        mmio::write64(address + offset, 0);
    }
    let [place, generation] = &cpu::of(index).queue;
    place.store(0, Relaxed);
    generation.store(1, Relaxed);
    // SAFETY: nine arguments are the registers' own; the queue is memory for this.
    let (status, _) =
        hcall::call9(hcall::INT_SET_QUEUE_CONFIG, [1, target, PRIORITY, address, QUEUE_SHIFT, 0, 0, 0, 0]);
    if status != hcall::SUCCESS {
        println!("@error the queue of CPU {index}: status {status}");
        return false;
    }
    route(index, source(index), target)
}

/// Lets a source of a device interrupt this CPU, under a number of its own; returns whether the hypervisor agreed.
pub fn connect(number: usize, source: u64) -> bool {
    let server = cpu::this().server.load(Relaxed);
    route(MAX_CPUS + number % (SOURCES - MAX_CPUS), source, server)
}

/// Makes a source the one with this index, for a CPU that has a queue.
fn route(index: usize, source: u64, target: u64) -> bool {
    let (status, [_, management, trigger, _]) = call4(hcall::INT_GET_SOURCE_INFO, [0, source, 0, 0]);
    if status != hcall::SUCCESS || management == u64::MAX {
        println!("@error source {source:#x}: status {status}, page {management:#x}");
        return false;
    }
    MANAGEMENT[index].store(management, Relaxed);
    TRIGGERS[index].store(if trigger == u64::MAX { management } else { trigger }, Relaxed);
    let (status, _) = hcall::call9(
        hcall::INT_SET_SOURCE_CONFIG,
        [2, source, target, PRIORITY, 2 + index as u64, 0, 0, 0, 0],
    );
    if status != hcall::SUCCESS {
        println!("@error the target of source {source:#x}: status {status}");
    }
    mmio::read64(management + esb::SET_READY);
    status == hcall::SUCCESS
}

/// Lets interrupts of all priorities in.
pub fn init_cpu() {
    mmio::write8(facts().presentation + tima::CPPR, 0xff);
}

/// Triggers the interrupt of the CPU with this number.
pub fn send(index: usize) {
    // SAFETY: orders what was written for the receiver before the trigger.
    unsafe { asm!("sync", options(nostack, preserves_flags)) };
    mmio::write64(trigger_page(index), 0);
}

/// Returns the next event of this CPU's queue, or none.
pub fn next_event() -> Option<u32> {
    let this = cpu::this();
    let [place, generation] = &this.queue;
    let at = place.load(Relaxed);
    let entry = u32::from_be(mmio::read32(queue(this.index()) + 4 * at));
    if u64::from(entry >> 31) != generation.load(Relaxed) {
        return None;
    }
    let next = (at + 1) % ENTRIES;
    place.store(next, Relaxed);
    if next == 0 {
        generation.fetch_xor(1, Relaxed);
    }
    Some(entry & 0x7fff_ffff)
}

/// Ends an interrupt before its handler: what is sent from then on is an event of its own.
fn end(index: usize) {
    let page = MANAGEMENT[index].load(Relaxed);
    if mmio::read64_big(page + esb::SET_READY) & 1 != 0 {
        mmio::write64(TRIGGERS[index].load(Relaxed), 0);
    }
}

/// Takes what is presented: accepts it, reads the queue, ends each, lets others in.
pub fn take() {
    let presentation = facts().presentation;
    if mmio::read16_big(presentation + tima::ACK) & NSR_EXCEPTION == 0 {
        events::on_event(events::SPURIOUS);
    }
    while let Some(event) = next_event() {
        let index = (event as usize).wrapping_sub(2);
        let is_own = index == cpu::this().index();
        if is_own || (MAX_CPUS..SOURCES).contains(&index) {
            end(index);
        }
        events::on_event(if is_own { events::IPI } else { events::DEVICE });
    }
    mmio::write8(presentation + tima::CPPR, 0xff);
}
