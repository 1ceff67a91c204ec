// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupts of the local APIC to itself: priorities, nesting, what holds them back.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use turnstile_guests_x86_64::apic::{self, icr, register};
use turnstile_guests_x86_64::cpu;
use turnstile_guests_x86_64::test::{Outcome, Test};
use turnstile_guests_x86_64::{check, check_eq, irq, read_control, timer, write_control};

use crate::log;

pub const TESTS: &[Test] = &[
    Test { name: "apic-self-ipi", run: self_ipi },
    Test { name: "apic-every-vector", run: every_vector },
    Test { name: "apic-masked", run: masked },
    Test { name: "apic-priority", run: priority },
    Test { name: "apic-nesting", run: nesting },
    Test { name: "apic-in-service", run: in_service },
    Test { name: "apic-same-vector", run: same_vector },
    Test { name: "apic-no-eoi", run: no_eoi },
    Test { name: "apic-tpr", run: tpr },
    Test { name: "apic-cr8", run: cr8 },
    Test { name: "apic-nmi", run: nmi },
    Test { name: "apic-halt", run: halt },
];

fn self_ipi() -> Outcome {
    log::begin();
    cpu::unmask();
    apic::send_to_self(0x61);
    check!(log::wait_for(1), "an interrupt to itself does not come");
    apic::send(0, icr::SELF | icr::ASSERT | 0x62);
    check!(log::wait_for(2), "an interrupt by the shorthand does not come");
    apic::send_to(apic::id(), 0x63);
    check!(log::wait_for(3), "an interrupt by its own identifier does not come");
    check!(log::is(&[0x61, 0x62, 0x63]), "they came as others");
    check!(
        !apic::bit(register::IRR, 0x61) && !apic::bit(register::ISR, 0x61),
        "it stays pending or in service"
    );
    Ok(())
}

fn every_vector() -> Outcome {
    log::begin();
    for vector in 0x30..=0xfe {
        apic::send_to_self(vector);
        cpu::take_interrupts();
        check!(
            timer::wait(1000, || irq::count(vector) == 1),
            "vector {vector:#x} came {} times",
            irq::count(vector)
        );
    }
    check_eq!(log::count(), 0xfe - 0x30 + 1, "interrupts");
    Ok(())
}

fn masked() -> Outcome {
    log::begin();
    apic::send_to_self(0x61);
    timer::wait(100, || false);
    check_eq!(log::count(), 0, "interrupts while they are masked");
    check!(apic::bit(register::IRR, 0x61), "it is not pending");
    cpu::take_interrupts();
    check!(log::is(&[0x61]), "it was not taken once interrupts were let in");
    Ok(())
}

fn priority() -> Outcome {
    log::begin();
    for vector in [0x41, 0x81, 0x61, 0x82, 0xf0, 0x60] {
        apic::send_to_self(vector);
    }
    check!(log::wait_for(6), "{} of 6 came", log::count());
    check!(log::is(&[0xf0, 0x82, 0x81, 0x61, 0x60, 0x41]), "not in the order of their priorities");
    Ok(())
}

/// The first handler sends others and lets them in: the higher one comes at once, the lower one at the end.
fn nesting() -> Outcome {
    fn handle(vector: u8) {
        if vector == 0x61 {
            apic::send_to_self(0x51);
            apic::send_to_self(0x81);
            // Of the same class: does not nest.
            apic::send_to_self(0x6f);
            cpu::take_interrupts();
        }
        log::enter(vector);
    }
    log::begin();
    irq::set_handler(Some(handle));
    apic::send_to_self(0x61);
    check!(log::wait_for(4), "{} of 4 came", log::count());
    check!(log::is(&[0x81, 0x61, 0x6f, 0x51]), "they were not nested by priority");
    Ok(())
}

fn in_service() -> Outcome {
    static SEEN: AtomicU64 = AtomicU64::new(0);
    fn handle(_: u8) {
        let bits = [apic::bit(register::ISR, 0x75), apic::bit(register::IRR, 0x75)].map(u64::from);
        let [isr, irr] = bits;
        SEEN.store(u64::from(apic::read(register::PPR)) | isr << 8 | irr << 9, Relaxed);
    }
    irq::set_handler(Some(handle));
    apic::send_to_self(0x75);
    cpu::take_interrupts();
    check_eq!(SEEN.load(Relaxed), 0x170, "PPR, in service, pending");
    check_eq!(apic::read(register::PPR), 0, "PPR afterwards");
    Ok(())
}

/// Two that are pending are one; one that comes while it is in service is another.
fn same_vector() -> Outcome {
    fn handle(vector: u8) {
        if log::count() == 0 {
            apic::send_to_self(vector);
            apic::send_to_self(vector);
        }
        log::enter(vector);
    }
    log::begin();
    apic::send_to_self(0x61);
    apic::send_to_self(0x61);
    log::wait(100);
    check!(log::is(&[0x61]), "two pending ones were taken {} times", log::count());
    log::begin();
    irq::set_handler(Some(handle));
    apic::send_to_self(0x61);
    log::wait(100);
    check!(log::is(&[0x61, 0x61]), "in service, it was taken {} times", log::count());
    Ok(())
}

/// Without an EOI nothing of its class or below comes.
fn no_eoi() -> Outcome {
    log::begin();
    irq::set_ending(irq::Ending::Handler);
    apic::send_to_self(0x71);
    check!(log::wait_for(1), "it does not come");
    apic::send_to_self(0x72);
    apic::send_to_self(0x41);
    log::wait(100);
    check_eq!(log::count(), 1, "interrupts before the EOI");
    apic::send_to_self(0x81);
    check!(log::wait_for(2), "one of higher priority does not come");
    apic::end();
    log::wait(100);
    check_eq!(log::count(), 2, "interrupts after the higher one's EOI");
    apic::end();
    check!(log::wait_for(3), "the one of the same class does not come after the EOI");
    apic::end();
    check!(log::wait_for(4), "the lower one does not come after the EOI");
    apic::end();
    check!(log::is(&[0x71, 0x81, 0x72, 0x41]), "they came in another order");
    Ok(())
}

fn tpr() -> Outcome {
    log::begin();
    apic::write(register::TPR, 0x60);
    check_eq!(apic::read(register::PPR), 0x60, "PPR");
    apic::send_to_self(0x6f);
    apic::send_to_self(0x70);
    log::wait(100);
    check!(log::is(&[0x70]), "TPR 0x60 does not let in just what is above");
    apic::write(register::TPR, 0x5f);
    check!(log::wait_for(2), "a lower TPR does not let it in");
    check!(log::is(&[0x70, 0x6f]), "they came as others");
    Ok(())
}

fn cr8() -> Outcome {
    apic::write(register::TPR, 0x5a);
    check_eq!(read_control!("cr8"), 5, "CR8");
    write_control!("cr8", 7);
    check_eq!(apic::read(register::TPR), 0x70, "TPR");
    log::begin();
    apic::send_to_self(0x7f);
    log::wait(100);
    check_eq!(log::count(), 0, "interrupts above CR8");
    write_control!("cr8", 6);
    check!(log::wait_for(1), "a lower CR8 does not let it in");
    check_eq!(apic::read(register::TPR), 0x60, "TPR");
    write_control!("cr8", 15);
    apic::send_to_self(0xfe);
    log::wait(100);
    check_eq!(log::count(), 1, "interrupts at CR8 15");
    apic::write(register::TPR, 0);
    check!(log::wait_for(2), "TPR 0 does not let it in");
    // The flag keeps it away, whatever the priority is.
    cpu::mask();
    apic::send_to_self(0x71);
    (0..=15).rev().for_each(|class| write_control!("cr8", class));
    check_eq!(log::count(), 2, "interrupts while they are masked");
    log::wait(100);
    check!(log::is(&[0x7f, 0xfe, 0x71]), "it does not come afterwards");
    Ok(())
}

fn nmi() -> Outcome {
    let before = cpu::this().nmis.load(Relaxed);
    // The boot CPU itself, by its identifier: the shorthand for itself has no NMI.
    apic::send(apic::id(), icr::NMI | icr::ASSERT);
    check!(timer::wait(10_000, || cpu::this().nmis.load(Relaxed) == before + 1), "no NMI came");
    apic::send(apic::id(), icr::NMI | icr::ASSERT);
    check!(timer::wait(10_000, || cpu::this().nmis.load(Relaxed) == before + 2), "no second NMI came");
    Ok(())
}

/// HLT ends with an interrupt that is pending already, one that comes, and an NMI while interrupts are masked.
fn halt() -> Outcome {
    log::begin();
    apic::send_to_self(0x61);
    cpu::wait();
    check!(log::is(&[0x61]), "HLT did not end with a pending interrupt");
    timer::arm(0x62, timer::now() + timer::ticks(500));
    cpu::wait();
    check!(log::is(&[0x61, 0x62]), "HLT did not end with the timer's interrupt");
    Ok(())
}
