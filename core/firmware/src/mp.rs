// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tables of the MultiProcessor Specification 1.4, chapter 4, for machines without ACPI.

use crate::bytes::{firmware_areas, is_sound, scan, u8, u16, u32};
use crate::{IoApic, Line, Machine, Physical};

const POINTER: &[u8] = b"_MP_";
/// Bytes of the floating pointer, and of the header of the configuration table.
const POINTER_LENGTH: usize = 16;
const HEADER: usize = 44;
const PROCESSOR: u8 = 0;
const BUS: u8 = 1;
const IO_APIC: u8 = 2;
const IO_INTERRUPT: u8 = 3;
/// An interrupt line that is neither NMI, SMI nor that of an 8259.
const VECTORED: u8 = 0;

/// Takes what the tables say; `None` if there are none.
pub fn read(memory: &impl Physical, machine: &mut Machine) -> Option<()> {
    let table = find(memory)?;
    machine.local_apic = u32(table, 36)?.into();
    let mut isa = None;
    let mut first = 0;
    let mut rest = table.get(HEADER..)?;
    while let Some(kind) = u8(rest, 0) {
        let length = if kind == PROCESSOR { 20 } else { 8 };
        let Some((entry, next)) = rest.split_at_checked(length) else { break };
        match kind {
            PROCESSOR if u8(entry, 3)? & 1 != 0 => machine.add_cpu(u8(entry, 1)?.into()),
            BUS if entry.get(2..5)? == b"ISA" => isa = u8(entry, 1),
            IO_APIC if u8(entry, 3)? & 1 != 0 => {
                let apic = IoApic { id: u8(entry, 1)?, address: u32(entry, 4)?.into(), first };
                let _ = machine.io_apics.try_push(apic);
                // Without ACPI interrupts of the system have no numbers of their own: 24 inputs for each are assumed.
                first += 24;
            }
            IO_INTERRUPT if u8(entry, 1)? == VECTORED && u8(entry, 4) == isa => line(entry, machine)?,
            _ => {}
        }
        rest = next;
    }
    Some(())
}

/// Takes an interrupt of the ISA bus.
fn line(entry: &[u8], machine: &mut Machine) -> Option<()> {
    let (irq, id, input) = (u8(entry, 5)?, u8(entry, 6)?, u8(entry, 7)?);
    let apic = machine.io_apics.iter().find(|apic| apic.id == id)?;
    let line = Line::with_flags(apic.first + u32::from(input), u16(entry, 2)?);
    if let Some(isa) = machine.isa.get_mut(usize::from(irq)) {
        *isa = line;
    }
    Some(())
}

/// Finds the configuration table.
fn find(memory: &impl Physical) -> Option<&[u8]> {
    let sound = |address| memory.bytes(address, POINTER_LENGTH).is_some_and(is_sound);
    let pointer = firmware_areas(memory)
        .into_iter()
        .chain([(0x9_fc00, 0xa_0000)])
        .find_map(|(start, end)| scan(memory, start, end, POINTER, sound))?;
    let address = u64::from(u32(memory.bytes(pointer, POINTER_LENGTH)?, 4)?);
    let header = memory.bytes(address, HEADER)?;
    let length = usize::from(u16(header, 4)?);
    if header.get(..4)? != b"PCMP" || length < HEADER {
        return None;
    }
    memory.bytes(address, length).filter(|table| is_sound(table))
}
