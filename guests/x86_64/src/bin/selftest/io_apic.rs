// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The I/O APIC: registers, edges of the 8254, the level of COM1's transmitter.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use turnstile_guests_x86_64::console::{COM1, FCR, IER, IRQ};
use turnstile_guests_x86_64::io_apic::{self, LEVEL, LOGICAL, MASKED, REMOTE_IRR};
use turnstile_guests_x86_64::platform::platform;
use turnstile_guests_x86_64::test::{Outcome, Test};
use turnstile_guests_x86_64::{apic, check, check_eq, irq, mmio, pit, port, skip};

use crate::log;

pub const TESTS: &[Test] = &[
    Test { name: "ioapic-identity", run: identity },
    Test { name: "ioapic-table", run: table },
    Test { name: "ioapic-edge", run: edge },
    Test { name: "ioapic-edge-masked", run: edge_masked },
    Test { name: "ioapic-logical", run: logical },
    Test { name: "ioapic-level", run: level },
    Test { name: "ioapic-level-again", run: level_again },
    Test { name: "ioapic-level-masked", run: level_masked },
    Test { name: "ioapic-directed-eoi", run: directed_eoi },
];

const VECTOR: u8 = 0x71;

fn identity() -> Outcome {
    check!(io_apic::pins() >= 24, "it has {} pins", io_apic::pins());
    let version = io_apic::read(io_apic::VERSION) & 0xff;
    check!(version == 0x11 || version == 0x20, "the version is {version:#x}");
    mmio::write32(io_apic::base() + io_apic::SELECT, 0x12);
    check_eq!(mmio::read32(io_apic::base() + io_apic::SELECT) & 0xff, 0x12, "the selected register");
    io_apic::write(0, 0x0f00_0000);
    check_eq!(io_apic::read(0) >> 24 & 0xf, 0xf, "the identifier");
    io_apic::write(0, 0);
    Ok(())
}

fn table() -> Outcome {
    for pin in 0..io_apic::pins() {
        let entry = 0xa5 << 56 | MASKED | LEVEL | 1 << 13 | LOGICAL | 0x100 | (u64::from(pin) + 0x40);
        io_apic::set_entry(pin, entry);
        check_eq!(io_apic::entry(pin), entry, "the entry of pin {pin}");
    }
    // What is only read.
    io_apic::set_entry(5, MASKED | REMOTE_IRR | 1 << 12 | 0x40);
    check_eq!(io_apic::entry(5), MASKED | 0x40, "the entry of pin 5");
    Ok(())
}

fn edge() -> Outcome {
    log::begin();
    io_apic::route_isa(0, VECTOR, apic::id());
    pit::start_periodic((pit::FREQUENCY / 1000) as u16);
    log::wait(10_500);
    pit::stop();
    let came = log::count();
    check!((8..=12).contains(&came), "{came} interrupts in 10 periods");
    check_eq!(log::first(), VECTOR, "the vector");
    Ok(())
}

fn edge_masked() -> Outcome {
    log::begin();
    let pin = u32::from(platform().acpi.isa[0].0);
    let entry = u64::from(apic::id()) << 56 | u64::from(VECTOR);
    io_apic::set_entry(pin, entry | MASKED);
    pit::start_once(200);
    log::wait(1000);
    check_eq!(log::count(), 0, "interrupts of a masked pin");
    io_apic::set_entry(pin, entry);
    pit::start_once(200);
    check!(log::wait_for(1), "no interrupt of an unmasked pin");
    Ok(())
}

fn logical() -> Outcome {
    if apic::is_x2apic() {
        apic::init_as(false);
    }
    log::begin();
    apic::write(apic::register::LDR, 0x04 << 24);
    let pin = u32::from(platform().acpi.isa[0].0);
    io_apic::set_entry(pin, 0x08 << 56 | LOGICAL | u64::from(VECTOR));
    pit::start_once(200);
    log::wait(1000);
    check_eq!(log::count(), 0, "interrupts for another logical destination");
    io_apic::set_entry(pin, 0x0c << 56 | LOGICAL | 1 << 8 | u64::from(VECTOR));
    pit::start_once(200);
    check!(log::wait_for(1), "no interrupt for its logical destination, lowest priority");
    Ok(())
}

/// COM1's line as a level: high from the transmitter's interrupt being enabled until its identification is read.
fn set_level() -> u32 {
    let pin = u32::from(platform().acpi.isa[usize::from(IRQ)].0);
    io_apic::set_entry(pin, u64::from(apic::id()) << 56 | LEVEL | u64::from(VECTOR));
    pin
}

static SEEN: AtomicU64 = AtomicU64::new(0);

fn look_and_lower(vector: u8) {
    let pin = u32::from(platform().acpi.isa[usize::from(IRQ)].0);
    SEEN.store(io_apic::entry(pin), Relaxed);
    port::write8(IER, 0);
    port::read8(FCR);
    log::enter(vector);
}

fn level() -> Outcome {
    log::begin();
    irq::set_handler(Some(look_and_lower));
    let pin = set_level();
    port::write8(IER, 2);
    let came = log::wait_for(1);
    log::wait(1000);
    check!(came, "no interrupt");
    check_eq!(log::count(), 1, "interrupts");
    check!(SEEN.load(Relaxed) & REMOTE_IRR != 0, "remote IRR was clear while it was in service");
    check_eq!(io_apic::entry(pin) & REMOTE_IRR, 0, "remote IRR after the EOI");
    Ok(())
}

/// A line that stays high comes again after each EOI.
fn level_again() -> Outcome {
    fn handle(vector: u8) {
        if log::count() == 3 {
            port::write8(IER, 0);
            port::read8(FCR);
        }
        log::enter(vector);
    }
    log::begin();
    irq::set_handler(Some(handle));
    set_level();
    port::write8(IER, 2);
    log::wait(2000);
    port::write8(IER, 0);
    check_eq!(log::count(), 4, "interrupts");
    Ok(())
}

/// A level that falls while the pin is masked is forgotten; one that stays is not.
fn level_masked() -> Outcome {
    log::begin();
    irq::set_handler(Some(look_and_lower));
    let pin = set_level();
    let entry = io_apic::entry(pin);
    io_apic::set_entry(pin, entry | MASKED);
    port::write8(IER, 2);
    port::write8(IER, 0);
    io_apic::set_entry(pin, entry);
    log::wait(200);
    check_eq!(log::count(), 0, "interrupts of a level that has fallen");
    io_apic::set_entry(pin, entry | MASKED);
    port::write8(IER, 2);
    io_apic::set_entry(pin, entry);
    check!(log::wait_for(1), "no interrupt of a level that stays");
    Ok(())
}

/// The EOI register of version 0x20, where the APIC does not broadcast its EOIs.
fn directed_eoi() -> Outcome {
    if io_apic::read(io_apic::VERSION) & 0xff < 0x20 {
        skip!("version {:#x}", io_apic::read(io_apic::VERSION) & 0xff);
    }
    log::begin();
    irq::set_handler(Some(look_and_lower));
    irq::set_ending(irq::Ending::Handler);
    let pin = set_level();
    port::write8(IER, 2);
    check!(log::wait_for(1), "no interrupt");
    check!(io_apic::entry(pin) & REMOTE_IRR != 0, "remote IRR is clear before the EOI");
    mmio::write32(io_apic::base() + io_apic::EOI, u32::from(VECTOR));
    check_eq!(io_apic::entry(pin) & REMOTE_IRR, 0, "remote IRR after the directed EOI");
    apic::end();
    check_eq!(port::read8(COM1 + 1), 0, "COM1's interrupts");
    Ok(())
}
