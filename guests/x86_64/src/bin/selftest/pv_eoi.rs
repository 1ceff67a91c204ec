// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Paravirtual EOI: when the bit is set, when it is taken back, and that no interrupt gets lost by it.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use turnstile_guests_x86_64::apic::{self, register};
use turnstile_guests_x86_64::console::{FCR, IER, IRQ};
use turnstile_guests_x86_64::io_apic::{self, LEVEL};
use turnstile_guests_x86_64::platform::platform;
use turnstile_guests_x86_64::test::{Outcome, Test};
use turnstile_guests_x86_64::{check, check_eq, cpu, irq, kvm, port, pv_eoi, skip};

use crate::log;

pub const TESTS: &[Test] = &[
    Test { name: "pveoi-msr", run: msr },
    Test { name: "pveoi-alone", run: alone },
    Test { name: "pveoi-many", run: many },
    Test { name: "pveoi-other-pending", run: other_pending },
    Test { name: "pveoi-taken-back", run: taken_back },
    Test { name: "pveoi-nested", run: nested },
    Test { name: "pveoi-mixed", run: mixed },
    Test { name: "pveoi-not-used", run: not_used },
    Test { name: "pveoi-level", run: level },
    Test { name: "pveoi-disabled", run: disabled },
    Test { name: "pveoi-reset", run: reset },
];

/// What handlers see, bit by bit in their order.
static SEEN: AtomicU64 = AtomicU64::new(0);

fn note(bit: bool) {
    SEEN.store(SEEN.load(Relaxed) << 1 | u64::from(bit), Relaxed);
}

fn enable(handler: fn(u8)) -> Outcome {
    if !pv_eoi::is_offered() {
        skip!("it is not offered");
    }
    log::begin();
    irq::set_handler(Some(handler));
    SEEN.store(1, Relaxed);
    pv_eoi::enable();
    Ok(())
}

fn look(vector: u8) {
    note(pv_eoi::is_set());
    log::enter(vector);
}

fn msr() -> Outcome {
    enable(look)?;
    let value = cpu::read_msr(kvm::msr::PV_EOI);
    check_eq!(value, cpu::this().eoi.0.as_ptr() as u64 | 1, "the MSR");
    pv_eoi::disable();
    check_eq!(cpu::read_msr(kvm::msr::PV_EOI) & 1, 0, "the MSR afterwards");
    Ok(())
}

fn alone() -> Outcome {
    enable(look)?;
    apic::send_to_self(0x61);
    check!(log::wait_for(1), "no interrupt");
    check_eq!(SEEN.load(Relaxed), 0b11, "the bit in the handler");
    check!(!pv_eoi::is_set(), "the bit is set outside a handler");
    // What the APIC shows has taken the cleared bit for an EOI.
    check!(!apic::bit(register::ISR, 0x61), "it is still in service");
    check_eq!(apic::read(register::PPR), 0, "PPR");
    Ok(())
}

fn many() -> Outcome {
    fn count(_: u8) {}
    enable(count)?;
    let before = pv_eoi::spared();
    for round in 1..=1000 {
        // Each of a lower, the same or a higher class than the one before.
        let vector = [0x61, 0x41, 0x41, 0x91][round % 4];
        apic::send_to_self(vector);
        cpu::take_interrupts();
        check_eq!(irq::total() as usize, round, "interrupts");
    }
    check_eq!(pv_eoi::spared() - before, 1000, "EOIs that were spared");
    Ok(())
}

/// Two wait: the first one's EOI lets the second in, so it must be written.
fn other_pending() -> Outcome {
    enable(look)?;
    apic::send_to_self(0x61);
    apic::send_to_self(0x62);
    check!(log::wait_for(2), "{} of 2 came", log::count());
    check!(log::is(&[0x62, 0x61]), "in another order");
    check_eq!(SEEN.load(Relaxed), 0b101, "the bit in the two handlers");
    Ok(())
}

/// The bit is set, and then another interrupt comes that the EOI would let in: it is taken back.
fn taken_back() -> Outcome {
    fn handle(vector: u8) {
        look(vector);
        if vector == 0x61 {
            apic::send_to_self(0x51);
            note(pv_eoi::is_set());
        }
    }
    enable(handle)?;
    apic::send_to_self(0x61);
    check!(log::wait_for(2), "{} of 2 came", log::count());
    check!(log::is(&[0x61, 0x51]), "in another order");
    check_eq!(
        SEEN.load(Relaxed),
        0b1101,
        "the bit: first handler, after the other one was sent, second handler"
    );
    Ok(())
}

/// A nested interrupt of higher priority is ended by the register, and so is the one below it.
fn nested() -> Outcome {
    fn handle(vector: u8) {
        look(vector);
        if vector == 0x61 {
            apic::send_to_self(0x81);
            cpu::take_interrupts();
            note(pv_eoi::is_set());
        }
    }
    enable(handle)?;
    apic::send_to_self(0x61);
    check!(log::wait_for(2), "{} of 2 came", log::count());
    check!(log::is(&[0x61, 0x81]), "in another order");
    check!(
        SEEN.load(Relaxed) & 0b010 == 0,
        "the bit is set for an interrupt that is nested: {:#b}",
        SEEN.load(Relaxed)
    );
    check!(!apic::bit(register::ISR, 0x61) && !apic::bit(register::ISR, 0x81), "one is still in service");
    apic::send_to_self(0x41);
    check!(log::wait_for(3), "a lower one does not come afterwards");
    Ok(())
}

/// A nested handler that does not know of the bit, and ends its interrupt by the register.
fn mixed() -> Outcome {
    fn handle(vector: u8) {
        log::enter(vector);
        if vector == 0x61 {
            apic::send_to_self(0x81);
            cpu::take_interrupts();
        }
        if vector == 0x81 {
            apic::end();
        } else {
            pv_eoi::end();
        }
    }
    enable(handle)?;
    irq::set_ending(irq::Ending::Handler);
    apic::send_to_self(0x61);
    check!(log::wait_for(2), "{} of 2 came", log::count());
    apic::send_to_self(0x41);
    check!(log::wait_for(3), "a lower one does not come afterwards");
    check!(log::is(&[0x61, 0x81, 0x41]), "in another order");
    Ok(())
}

/// The bit is set, and the guest writes the register all the same.
fn not_used() -> Outcome {
    fn handle(vector: u8) {
        look(vector);
        apic::end();
    }
    enable(handle)?;
    irq::set_ending(irq::Ending::Handler);
    for vector in [0x61, 0x41, 0x61] {
        apic::send_to_self(vector);
        cpu::take_interrupts();
    }
    check!(log::is(&[0x61, 0x41, 0x61]), "{} came", log::count());
    check!(!apic::bit(register::ISR, 0x61), "it is still in service");
    check!(!pv_eoi::is_set(), "the bit is set outside a handler");
    Ok(())
}

/// A level of the I/O APIC needs the EOI's broadcast.
fn level() -> Outcome {
    fn handle(vector: u8) {
        look(vector);
        port::write8(IER, 0);
        port::read8(FCR);
    }
    enable(handle)?;
    let pin = u32::from(platform().acpi.isa[usize::from(IRQ)].0);
    io_apic::set_entry(pin, u64::from(apic::id()) << 56 | LEVEL | 0x71);
    for round in 1..=3 {
        port::write8(IER, 2);
        check!(log::wait_for(round), "interrupt {round} does not come");
    }
    check_eq!(SEEN.load(Relaxed), 0b1000, "the bit in the handlers");
    Ok(())
}

fn disabled() -> Outcome {
    enable(look)?;
    pv_eoi::disable();
    apic::send_to_self(0x61);
    check!(log::wait_for(1), "no interrupt");
    check_eq!(SEEN.load(Relaxed), 0b10, "the bit in the handler");
    Ok(())
}

/// An APIC that is switched off and on has nothing in service, so the bit is nobody's.
fn reset() -> Outcome {
    enable(look)?;
    irq::set_ending(irq::Ending::Handler);
    apic::send_to_self(0x61);
    check!(log::wait_for(1), "no interrupt");
    let base = cpu::read_msr(cpu::msr::APIC_BASE);
    cpu::write_msr(cpu::msr::APIC_BASE, base & !0xc00);
    apic::init();
    check!(!apic::bit(register::ISR, 0x61), "it is still in service");
    cpu::this().eoi.0.store(0, Relaxed);
    irq::set_ending(irq::Ending::Eoi);
    apic::send_to_self(0x41);
    check!(log::wait_for(2), "no interrupt afterwards");
    Ok(())
}
