// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What drivers of PCI functions need of this machine. Firmware reaches their configuration spaces, and gives them messages (LoPAR,
//! sections 7.3.4 and 7.3.10.5).

use turnstile_guests_common::accesses_by_size;
use turnstile_guests_common::pci::Config;
use turnstile_guests_common::virtio::Machine;

use crate::platform::{Controller, Pci, platform};
use crate::{cpu, irq, mmio, println, rtas, trap};

/// What `ibm,change-msi` is asked for: MSI-X.
const MSIX: u32 = 4;
/// The first of a sequence of calls.
const FIRST: u32 = 1;

/// Sets the machine up for drivers, which use this memory: the first messages' interrupts come. `None`, and a line, if there is no PCI.
pub fn begin(memory: u64) -> Option<Machine> {
    let Some(Pci { window, .. }) = platform().pci else {
        println!("@error there is no PCI");
        return None;
    };
    irq::init();
    cpu::unmask();
    let presentation = match platform().controller {
        Controller::Xive(facts) => facts.presentation,
        Controller::Xics | Controller::None => 0,
    };
    Some(Machine {
        config: Config { read: space, write: set_space },
        mmio: None,
        window,
        read,
        write,
        touch,
        probe: |address| _ = trap::caught(|| _ = mmio::read32(address)),
        message,
        interrupts: || irq::count(irq::DEVICE),
        sleep: |seen| {
            // What arrives in between is let in by the call that waits.
            cpu::mask();
            if irq::count(irq::DEVICE) == seen {
                cpu::wait();
            }
            cpu::unmask();
        },
        memory,
        elsewhere: [
            platform().uart.map_or(0, |uart| uart.base),
            presentation,
            window.base - 0x4000,
            window.base,
            window.end(),
            platform().end_of_memory(),
            0,
            !0xfff,
        ],
    })
}

/// How a register of a function is named, and the host bridge.
fn name(slot: u8, offset: u16) -> [u32; 3] {
    let unit = platform().pci.map_or(0, |pci| pci.unit);
    let register = u32::from(offset);
    [(register & 0xf00) << 20 | u32::from(slot) << 11 | register & 0xff, (unit >> 32) as u32, unit as u32]
}

/// Reads of a configuration space: ones if firmware refuses.
fn space(slot: u8, offset: u16, size: u8) -> u32 {
    let [address, high, low] = name(slot, offset);
    let read = rtas::ask(platform().tokens.read_pci, &[address, high, low, size.into()]);
    read.map_or(!0, |[value]| value)
}

/// Writes to a configuration space, unless firmware refuses.
fn set_space(slot: u8, offset: u16, size: u8, value: u32) {
    let [address, high, low] = name(slot, offset);
    rtas::ask::<0>(platform().tokens.write_pci, &[address, high, low, size.into(), value]);
}

/// Asks for one message, which firmware writes to the function's table, and lets its source interrupt this CPU.
fn message(slot: u8) -> Option<(u64, u32)> {
    let [address, high, low] = name(slot, 0);
    let tokens = &platform().tokens;
    let source = rtas::ask::<3>(tokens.change_msi, &[address, high, low, MSIX, 1, FIRST])
        .and_then(|_| rtas::ask(tokens.query_source, &[address, high, low, 0]));
    if !source.is_some_and(|[source, _]: [u32; 2]| irq::connect(slot.into(), source)) {
        println!("@error slot {slot} has no message");
    }
    None
}

accesses_by_size!(mmio);
