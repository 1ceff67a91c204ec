// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What drivers of PCI functions need of this machine. Messages come by a GICv2m frame.

use turnstile_guests_common::accesses_by_size;
use turnstile_guests_common::pci::Config;
use turnstile_guests_common::virtio::Machine;

use crate::platform::{Platform, platform};
use crate::{cpu, gic, irq, mmio, mmu, println, trap};

/// `MSI_SETSPI_NS`.
const SET_SPI: u64 = 0x40;

/// Sets the machine up for drivers, which use this memory: the MMU is on, and the first message's interrupt comes. `None`, and a line, if
/// there is no PCI.
pub fn begin(memory: u64) -> Option<Machine> {
    mmu::enable();
    let Platform { pci: Some(pci), messages: Some(messages), .. } = platform() else {
        println!("@error there is no PCI");
        return None;
    };
    gic::init();
    gic::set_edge(messages.first, true);
    gic::enable(messages.first);
    cpu::unmask_irq();
    let uart = platform().uart.map_or(0, |uart| uart.region.base);
    Some(Machine {
        config: Config {
            read: |slot, offset, size| space_at(space(slot, offset), size) as u32,
            write: |slot, offset, size, value| set_space(space(slot, offset), size, value.into()),
        },
        window: pci.window,
        read,
        write,
        probe: |address| _ = trap::caught(|| _ = mmio::read32(address)),
        message: |_| platform().messages.map(|frame| (frame.region.base + SET_SPI, frame.first)),
        interrupts: || platform().messages.map_or(0, |frame| irq::count(frame.first)),
        sleep: |seen| {
            // What arrives in between ends the wait although it is masked.
            cpu::mask_irq();
            if platform().messages.is_some_and(|frame| irq::count(frame.first) == seen) {
                cpu::wfi();
            }
            cpu::unmask_irq();
        },
        memory,
        elsewhere: [
            platform().ram().base,
            uart,
            messages.region.base,
            pci.ecam.base + (2 << 15),
            gic::distributor(),
            platform().end_of_memory(),
            0,
            !0xfff,
        ],
    })
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
