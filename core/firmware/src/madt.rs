// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The Multiple APIC Description Table (ACPI 5.2.12): CPUs, I/O APICs, and how ISA interrupts reach them.

use crate::bytes::{u8, u16, u32, u64};
use crate::{IoApic, Line, Machine};

/// Where the entries begin.
const ENTRIES: usize = 44;
const LOCAL_APIC: u8 = 0;
const IO_APIC: u8 = 1;
const SOURCE_OVERRIDE: u8 = 2;
const LOCAL_APIC_ADDRESS: u8 = 5;
const LOCAL_X2APIC: u8 = 9;
/// The CPU may be used. One that can only be plugged in is not there.
const ENABLED: u32 = 1;

/// Takes what the table says; entries that are cut off end it.
pub fn read(table: &[u8], machine: &mut Machine) {
    if let Some(address) = u32(table, 36) {
        machine.local_apic = address.into();
    }
    let mut rest = table.get(ENTRIES..).unwrap_or(&[]);
    while let (Some(kind), Some(length)) = (u8(rest, 0), u8(rest, 1)) {
        let Some((entry, next)) = rest.split_at_checked(usize::from(length)) else { return };
        if length < 2 || take(kind, entry, machine).is_none() {
            return;
        }
        rest = next;
    }
}

/// Takes one entry; `None` if it is too short.
fn take(kind: u8, entry: &[u8], machine: &mut Machine) -> Option<()> {
    match kind {
        LOCAL_APIC if u32(entry, 4)? & ENABLED != 0 => machine.add_cpu(u8(entry, 3)?.into()),
        LOCAL_X2APIC if u32(entry, 8)? & ENABLED != 0 => machine.add_cpu(u32(entry, 4)?),
        IO_APIC => {
            let apic = IoApic { id: u8(entry, 2)?, address: u32(entry, 4)?.into(), first: u32(entry, 8)? };
            let _ = machine.io_apics.try_push(apic);
        }
        SOURCE_OVERRIDE => {
            let line = Line::with_flags(u32(entry, 4)?, u16(entry, 8)?);
            if let Some(isa) = machine.isa.get_mut(usize::from(u8(entry, 3)?)) {
                *isa = line;
            }
        }
        LOCAL_APIC_ADDRESS => machine.local_apic = u64(entry, 4)?,
        _ => {}
    }
    Some(())
}
