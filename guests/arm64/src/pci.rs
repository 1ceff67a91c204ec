// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What drivers of virtio devices need of this machine. They are PCI functions, whose messages come by a GICv2m frame; if there is no PCI, the
//! first one behind MMIO.

use turnstile_guests_common::accesses_by_size;
use turnstile_guests_common::memory::Region;
use turnstile_guests_common::pci::Config;
use turnstile_guests_common::virtio::Machine;

use crate::platform::platform;
use crate::{cpu, gic, irq, mmio, mmu, println, trap};

/// `MSI_SETSPI_NS`.
const SET_SPI: u64 = 0x40;

/// Configuration spaces.
const SPACES: Config = Config {
    read: |slot, offset, size| space_at(space(slot, offset), size) as u32,
    write: |slot, offset, size, value| set_space(space(slot, offset), size, value.into()),
};
/// Those of a machine without PCI: there is no function.
const NO_SPACES: Config = Config { read: |_, _, _| !0, write: |_, _, _, _| {} };

/// Sets the machine up for drivers, which use this memory: the MMU is on, and the interrupt of the first message, or of the device behind MMIO, comes.
/// `None`, and a line, if there are no such devices.
pub fn begin(memory: u64) -> Option<Machine> {
    mmu::enable();
    let Some(intid) = interrupt() else {
        println!("@error there is neither PCI nor a virtio device behind MMIO");
        return None;
    };
    gic::init();
    gic::set_edge(intid, true);
    gic::enable(intid);
    cpu::unmask_irq();
    let (pci, messages) = (platform().pci, platform().messages);
    let uart = platform().uart.map_or(0, |uart| uart.region.base);
    Some(Machine {
        config: if pci.is_some() { SPACES } else { NO_SPACES },
        mmio: if pci.is_some() { None } else { platform().virtio.map(|virtio| virtio.region.base) },
        window: pci.map_or(Region::NOWHERE, |pci| pci.window),
        read,
        write,
        touch,
        probe: |address| _ = trap::caught(|| _ = mmio::read32(address)),
        message: |_| platform().messages.map(|frame| (frame.region.base + SET_SPI, frame.first)),
        interrupts: || interrupt().map_or(0, irq::count),
        sleep: |seen| {
            // What arrives in between ends the wait although it is masked.
            cpu::mask_irq();
            if interrupt().is_some_and(|intid| irq::count(intid) == seen) {
                cpu::wfi();
            }
            cpu::unmask_irq();
        },
        memory,
        elsewhere: [
            platform().ram().base,
            uart,
            messages.map_or(0, |frame| frame.region.base),
            pci.map_or(0, |pci| pci.ecam.base + (2 << 15)),
            gic::distributor(),
            platform().end_of_memory(),
            0,
            !0xfff,
        ],
    })
}

/// The interrupt that devices have here.
fn interrupt() -> Option<u32> {
    match platform().pci {
        Some(_) => platform().messages.map(|frame| frame.first),
        None => platform().virtio.map(|virtio| virtio.intid),
    }
}

fn space(slot: u8, offset: u16) -> u64 {
    let ecam = platform().pci.map_or(0, |pci| pci.ecam.base);
    ecam + (u64::from(slot) << 15) + u64::from(offset)
}

/// Reads of a configuration space. What is not aligned may be a fault of the access to memory of devices, and reads as zero then.
fn space_at(address: u64, size: u8) -> u64 {
    let mut value = 0;
    match address.is_multiple_of(size.into()) {
        true => value = read(address, size),
        false => _ = trap::caught(|| value = read(address, size)),
    }
    value
}

/// Writes to a configuration space; see [`space_at`].
fn set_space(address: u64, size: u8, value: u64) {
    match address.is_multiple_of(size.into()) {
        true => write(address, size, value),
        false => _ = trap::caught(|| write(address, size, value)),
    }
}

accesses_by_size!(mmio);
