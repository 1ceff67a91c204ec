// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Physical memory: what the hypervisor keeps for itself, and what guests get.

use spin::Mutex;
use turnstile_arch_common::allocators::{Allocators, reserve};
pub use turnstile_arch_common::memory::Error;
use turnstile_arch_common::memory::{MIB, PAGE, align, cover, map_missing, range};
use turnstile_firmware::Range;
use turnstile_paging::{Error as PagingError, PageTable, PhysAddr, Stage1Attributes, Stage1El2};
use turnstile_vm::stolen::RECORD;

use super::bulk::zero;
use super::el2::{self, Pool, Regime};
use super::stolen::Records;
use super::window;
use crate::board::discover::{Machine, Release};
use crate::cpu;

/// Bytes of a physical CPU's stack, without its guard page.
const STACK: u64 = 32 * 1024;
/// The same of the first CPU, which reads the bundle.
const FIRST_STACK: u64 = 64 * 1024;
/// Bytes of the stack for fault reports.
const FAULT_STACK: u64 = 16 * 1024;
/// Bytes that are taken for more stacks when there is no room for another.
const MORE_STACKS: u64 = 2 * MIB;
static MEMORY: Mutex<Option<Memory>> = Mutex::new(None);

pub(super) struct Memory {
    /// What it is given out from. Stacks are mapped each by itself between unmapped pages: apart from the arena, because a
    /// block that holds tables in use cannot be split: while it is broken, the tables could not be written.
    pub(super) frames: Allocators,
    pub(super) el2: PageTable<Stage1El2>,
}

/// Sets up the allocators and the final EL2 tables. `in_use` are the ranges that were loaded beside the
/// image and stay readable (device tree, bundle); `devices` are register blocks, `fixed` are pages of registers, each
/// with its address in the window of a GICv2 and its physical one.
///
/// # Errors
/// When the memory map cannot hold the hypervisor.
pub fn init(
    machine: &Machine<'_>,
    in_use: &[Range],
    devices: &[Range],
    fixed: &[(u64, u64)],
) -> Result<(), Error> {
    let mut frames = Allocators::new();
    for memory in &machine.memory {
        if let Some((start, size)) = align(memory.base, memory.size)
            && start < window::BASE
        {
            frames.guests.add(range(start, size.min(window::BASE - start))?)?;
        }
    }
    let spin_tables = machine.cpus.iter().filter_map(|cpu| match cpu.release {
        Release::SpinTable(base) => Some(Range { base, size: 8 }),
        Release::Psci => None,
    });
    let taken = machine.reserved.iter().chain(in_use).copied().chain([el2::image()]);
    reserve(&mut frames.guests, taken.chain(spin_tables))?;
    let own = frames.take_arena()?;
    el2::make_normal(own);
    // SAFETY: frames that were just taken from free RAM, are mapped, and nobody else gets them.
    unsafe { frames.use_arena(own)? };
    let stacks = machine.cpus.len() as u64 * (STACK + FAULT_STACK + 2 * PAGE);
    frames.add_stacks(stacks + FIRST_STACK - STACK)?;
    let el2 = el2::build(&mut frames.arena, own, in_use, devices, fixed)?;
    *MEMORY.lock() = Some(Memory { frames, el2 });
    Ok(())
}

impl Memory {
    /// Maps memory in the EL2 address space, one to one.
    pub(super) fn map(&mut self, start: u64, size: u64) -> Result<(), Error> {
        let mut pool = Pool { arena: &mut self.frames.arena, regime: Regime::El2 };
        self.el2.map(&mut pool, start, PhysAddr(start), size, Stage1Attributes::DATA)?;
        cpu::dsb_ish();
        cpu::isb();
        Ok(())
    }
}

/// Runs `f` on the memory state; it exists from [`init`] on.
pub(super) fn with<R>(f: impl FnOnce(&mut Memory) -> Result<R, Error>) -> Result<R, Error> {
    MEMORY.lock().as_mut().map_or(Err(Error::NoArena), f)
}

/// Returns the physical address of the EL2 tables' root, for secondary CPUs.
pub fn el2_root() -> u64 {
    with(|m| Ok(m.el2.root().0)).unwrap_or(0)
}

/// Allocates a stack with an unmapped guard page below it and returns its top.
///
/// The page above it is the next stack's guard.
fn stack(size: u64) -> Result<u64, Error> {
    with(|m| {
        let frames = match m.frames.stacks.allocate(size + PAGE, PAGE) {
            Ok(frames) => frames,
            Err(_) => {
                m.frames.add_stacks(MORE_STACKS)?;
                m.frames.stacks.allocate(size + PAGE, PAGE)?
            }
        };
        let start = frames.start().0 + PAGE;
        m.map(start, size)?;
        Ok(frames.end().0)
    })
}

/// Returns the bytes of the stack of CPU `index`.
pub const fn stack_size(index: usize) -> u64 {
    if index == 0 { FIRST_STACK } else { STACK }
}

/// Allocates the stack of CPU `index`; returns its top.
///
/// # Errors
/// When there is no room for another stack.
pub fn cpu_stack(index: usize) -> Result<u64, Error> {
    stack(stack_size(index))
}

/// Allocates the stack of a vCPU that shares CPUs; returns its top.
///
/// # Errors
/// When there is no room for another stack.
pub fn vcpu_stack() -> Result<u64, Error> {
    stack(STACK)
}

/// Allocates a CPU's stack for fault reports; returns its top.
///
/// # Errors
/// When there is no room for another stack.
pub fn fault_stack() -> Result<u64, Error> {
    stack(FAULT_STACK)
}

/// Allocates the records of stolen time of a VM of `vcpus` vCPUs: whole pages of cleared memory, for ever.
///
/// # Errors
/// When there is no room.
pub fn stolen_time_records(vcpus: usize) -> Result<Records, Error> {
    with(|m| {
        let frames = m.frames.arena.allocate((vcpus as u64 * RECORD).next_multiple_of(PAGE), PAGE)?;
        zero(frames.start().0, frames.size());
        // SAFETY: just allocated and cleared; the arena is mapped for ever, and nothing here is ever freed.
        Ok(unsafe { Records::new(frames.start().0, frames.size()) })
    })
}

/// Takes memory of guests for a pool of so many bytes, whole blocks. At boot, and for ever.
///
/// # Errors
/// When so much contiguous memory is not left.
pub fn pool(size: u64) -> Result<&'static turnstile_arch_common::pooled::Pool, Error> {
    with(|m| m.frames.pool(size))
}

/// Bytes that are free: (for guests, in the arena). What a VM took comes back when it stops.
pub fn free_bytes() -> (u64, u64) {
    with(|m| Ok(m.frames.free_bytes())).unwrap_or((0, 0))
}

/// Maps memory that EL2 does not usually see, one to one.
pub(super) fn open_window(start: u64, size: u64) -> Result<(), Error> {
    with(|m| m.map(start, size))
}

/// Takes the mapping of [`open_window`] away again.
pub(super) fn close_window(start: u64, size: u64) -> Result<(), Error> {
    with(|m| {
        let mut pool = Pool { arena: &mut m.frames.arena, regime: Regime::El2 };
        m.el2.unmap(&mut pool, start, size)?;
        Ok(())
    })
}

/// Maps registers of a device in the EL2 address space for ever, one to one.
///
/// # Errors
/// When they are beyond the address space, or there is no memory for tables.
pub fn map_registers(registers: Range) -> Result<(), Error> {
    let reachable = Range { base: 0, size: window::BASE };
    let pages = cover(registers.base, registers.size).filter(|_| reachable.contains(registers));
    let pages = pages.ok_or(Error::Paging(PagingError::OutOfRange))?;
    with(|m| {
        let mut pool = Pool { arena: &mut m.frames.arena, regime: Regime::El2 };
        map_missing(&mut m.el2, &mut pool, pages, Stage1Attributes::DEVICE)?;
        // The tables before the accesses.
        cpu::dsb_ish();
        cpu::isb();
        Ok(())
    })
}

/// Writes a CPU's release address in its spin table (Devicetree Specification 3.8.1).
///
/// # Errors
/// When the page cannot be mapped.
pub fn write_release_address(address: u64, entry: u64) -> Result<(), Error> {
    let page = address & !(PAGE - 1);
    open_window(page, PAGE)?;
    // SAFETY: the page was just mapped writable; the device tree gives this word to whoever starts the CPU.
    unsafe { core::ptr::write_volatile(address as *mut u64, entry) };
    cpu::clean_to_poc(address, 8);
    close_window(page, PAGE)
}
