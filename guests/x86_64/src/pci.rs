// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What drivers of PCI functions need of this machine. Messages come to the boot CPU's local APIC.

use turnstile_guests_common::accesses_by_size;
use turnstile_guests_common::memory::Region;
use turnstile_guests_common::pci::Config;
use turnstile_guests_common::virtio::Machine;

use crate::platform::platform;
use crate::{apic, cpu, io_apic, irq, mmio, options, pic, port, pv_eoi, trap};

/// What BARs can decode: the lower half of the hole below 4 GiB, where q35 has no other device.
const WINDOW: Region = Region { base: 0xc000_0000, size: 0x2000_0000 };
/// The page of a service that is no function.
const SERVICE: u64 = 0xfed8_0000;
/// The message's vector.
const VECTOR: u8 = 0x71;

/// Configuration mechanism #1 (PCI Local Bus Specification 3.0, 3.2.2.3.2): the port of the address, and the first one of the data.
const ADDRESS: u16 = 0xcf8;
const DATA: u16 = 0xcfc;
/// The bytes of a configuration space that it reaches.
const REACHED: u16 = 256;

/// Configuration spaces by ports.
const PORTS: Config = Config {
    read: |slot, offset, size| match select(slot, offset) {
        None => !0,
        Some(port) => match size {
            1 => port::read8(port).into(),
            2 => port::read16(port).into(),
            _ => port::read32(port),
        },
    },
    write: |slot, offset, size, value| match (select(slot, offset), size) {
        (None, _) => {}
        (Some(port), 1) => port::write8(port, value as u8),
        (Some(port), 2) => port::write16(port, value as u16),
        (Some(port), _) => port::write32(port, value),
    },
};

/// Configuration spaces in memory, as the MCFG says.
const MEMORY: Config = Config {
    read: |slot, offset, size| read(space(slot, offset), size) as u32,
    write: |slot, offset, size, value| write(space(slot, offset), size, value.into()),
};

/// Sets the machine up for drivers, which use this memory: the message's interrupt comes, and is ended as Linux does. Configuration
/// spaces are in memory; with `pci=ports`, or if they are not there, behind ports.
pub fn begin(memory: u64) -> Machine {
    pic::init();
    apic::init();
    if pv_eoi::is_wanted() {
        pv_eoi::enable();
    }
    cpu::unmask();
    let by_ports = options::get("pci") == Some("ports") || platform().acpi.configuration == 0;
    Machine {
        config: if by_ports { PORTS } else { MEMORY },
        mmio: None,
        window: WINDOW,
        read,
        write,
        touch,
        probe: |address| _ = trap::caught(|| _ = mmio::read32(address)),
        message: |_| Some((apic::PAGE | u64::from(apic::id()) << 12, VECTOR.into())),
        interrupts: || irq::count(VECTOR),
        sleep: |seen| {
            // What arrives in between is let in with the instruction that waits.
            cpu::mask();
            if irq::count(VECTOR) == seen {
                cpu::wait();
            }
            cpu::unmask();
        },
        memory,
        elsewhere: [
            0,
            io_apic::base(),
            apic::PAGE,
            SERVICE,
            space(2, 0),
            platform().end_of_memory(),
            WINDOW.end(),
            !0xfff,
        ],
    }
}

/// Names an offset in a slot's configuration space; returns its port, if it has one.
fn select(slot: u8, offset: u16) -> Option<u16> {
    (offset < REACHED).then(|| {
        port::write32(ADDRESS, 1 << 31 | u32::from(slot) << 11 | u32::from(offset & 0xfc));
        DATA + offset % 4
    })
}

fn space(slot: u8, offset: u16) -> u64 {
    platform().acpi.configuration + (u64::from(slot) << 15) + u64::from(offset)
}

accesses_by_size!(mmio);
