// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupts of the machine's PCI functions: messages (MSI-X; PCI Local Bus Specification 3.0, section 6.8.2), which a local APIC takes
//! as interrupts (APM vol. 2, 16.11). Each function that is connected has a vector, by the first entry of its table.

use core::sync::atomic::{AtomicUsize, Ordering};

use spin::Once;
use turnstile_arch_common::mmio::Registers;

use super::interrupts::{DEVICE, DEVICES};

/// Where messages to local APICs are written. The identification of the CPU's is in bits 19 to 12.
const MESSAGES: u32 = 0xfee0_0000;
/// An identification that means all CPUs. Those above it do not fit into a message.
const ALL: u8 = 0xff;

/// Bytes of an entry of a table.
const ENTRY: usize = 16;
const ADDRESS: usize = 0;
const ADDRESS_HIGH: usize = 4;
const DATA: usize = 8;
const CONTROL: usize = 12;
/// The entry's messages are held back, and sent when it is clear.
const MASKED: u32 = 1;

/// The tables of the functions that are connected, by their vectors.
static TABLES: [Once<Registers>; DEVICES as usize] = [const { Once::new() }; DEVICES as usize];
/// How many vectors are taken.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// Returns where messages to a CPU are written, and the identification that is in them; `None` if no message can name the CPU.
fn address(apic_id: u32) -> Option<(u32, u8)> {
    let destination = u8::try_from(apic_id).ok().filter(|id| *id != ALL)?;
    Some((MESSAGES | u32::from(destination) << 12, destination))
}

/// Takes a vector, if there is still one.
fn take() -> Option<usize> {
    let take = |taken: usize| (taken < TABLES.len()).then_some(taken + 1);
    // Relaxed: the number itself is all that is shared.
    TAKEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()
}

/// Returns a message to a CPU, for what has no table of them: its vector, its address and its data. It cannot be masked.
pub fn single(apic_id: u32) -> Option<(u8, u64, u32)> {
    let (address, _) = address(apic_id)?;
    let vector = DEVICE + take()? as u8;
    Some((vector, address.into(), vector.into()))
}

/// Has the first entry of the table at a physical address send messages to a CPU, and returns their vector. The whole table is masked.
/// What a message with a vector to a CPU has as its data, `data` says. `None` if no message can name the CPU, all vectors are taken, there is no
/// such data, or the table cannot be mapped.
///
/// # Safety
/// The table belongs to a function, has so many entries, and is nobody else's.
pub unsafe fn connect(
    table: u64,
    entries: u16,
    apic_id: u32,
    data: impl FnOnce(u8, u8) -> Option<u32>,
) -> Option<u8> {
    let (address, destination) = address(apic_id)?;
    let last = usize::from(entries).checked_sub(1)?;
    map(table, u64::from(entries) * ENTRY as u64)?;
    let number = take()?;
    let vector = DEVICE + number as u8;
    let data = data(vector, destination)?;
    // SAFETY: mapped as device memory, for ever; the size is the caller's promise.
    let registers = unsafe { Registers::new(table) };
    for entry in 0..=last {
        registers.write32(entry * ENTRY + CONTROL, MASKED);
    }
    registers.write32(ADDRESS, address);
    registers.write32(ADDRESS_HIGH, 0);
    registers.write32(DATA, data);
    TABLES.get(number)?.call_once(|| registers);
    Some(vector)
}

/// Masks or unmasks the messages of a vector, if it is a function's. One that is under way may still come.
pub fn mask(vector: u8, masked: bool) {
    let table = vector.checked_sub(DEVICE).and_then(|number| TABLES.get(usize::from(number))?.get());
    if let Some(table) = table {
        table.write32(CONTROL, if masked { MASKED } else { 0 });
    }
}

/// Maps registers of a function.
#[cfg(target_os = "none")]
pub fn map(table: u64, size: u64) -> Option<()> {
    crate::memory::map_registers(table, size).ok()
}

/// On the host they are memory of a test.
#[cfg(not(target_os = "none"))]
pub const fn map(_: u64, _: u64) -> Option<()> {
    Some(())
}
