// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The local APIC, as x2APIC if the machine has it: registers, priorities, nesting, interrupts to itself.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use turnstile_guests_x86_64::apic::{self, icr, register};
use turnstile_guests_x86_64::cpu::{self, msr};
use turnstile_guests_x86_64::exception::vector;
use turnstile_guests_x86_64::test::{Outcome, Test};
use turnstile_guests_x86_64::{check, check_eq, irq, probe, read_control, skip, timer, trap, write_control};

use crate::log;

pub const TESTS: &[Test] = &[
    Test { name: "apic-identity", run: identity },
    Test { name: "apic-reset", run: reset },
    Test { name: "apic-registers", run: registers },
    Test { name: "apic-x2apic-faults", run: x2apic_faults },
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
    Test { name: "apic-cr8-faults", run: cr8_faults },
    Test { name: "apic-nmi", run: nmi },
    Test { name: "apic-disabled", run: disabled },
    Test { name: "apic-illegal-vector", run: illegal_vector },
    Test { name: "apic-halt", run: halt },
];

fn identity() -> Outcome {
    check_eq!(u64::from(apic::id()), cpu::initial_apic_id(), "the identifier");
    let version = apic::read(register::VERSION);
    check!((0x10..0x20).contains(&(version & 0xff)), "the version is {version:#x}");
    check!((version >> 16 & 0xff) >= 3, "the version {version:#x} has fewer than 4 local vectors");
    let base = cpu::read_msr(msr::APIC_BASE);
    check!(base & 1 << 8 != 0, "APIC_BASE {base:#x} does not say that this is the boot CPU");
    check_eq!(base & 0xf_ffff_f000, apic::PAGE, "the page's address");
    Ok(())
}

/// After it was switched off and on again, all registers are as after a reset.
fn reset() -> Outcome {
    if crate::is_bare() {
        skip!("QEMU keeps registers");
    }
    apic::write(register::TPR, 0x70);
    apic::send_to_self(0x61);
    let base = cpu::read_msr(msr::APIC_BASE);
    cpu::write_msr(msr::APIC_BASE, base & !0xc00);
    cpu::write_msr(msr::APIC_BASE, base & !0x400 | 0x800);
    cpu::write_msr(msr::APIC_BASE, base);
    check_eq!(apic::read(register::TPR), 0, "TPR");
    check_eq!(apic::read(register::SVR), 0xff, "SVR");
    check_eq!(apic::read(register::LVT_TIMER), apic::MASKED, "the timer's vector");
    check_eq!(apic::read(register::LVT_LINT0), apic::MASKED, "LINT0's vector");
    check_eq!(apic::read(register::TIMER_INITIAL), 0, "the timer's count");
    check!(!apic::bit(register::IRR, 0x61), "an interrupt is pending");
    Ok(())
}

fn registers() -> Outcome {
    for value in [0, 0x2f, 0xff] {
        apic::write(register::TPR, value);
        check_eq!(apic::read(register::TPR), value, "TPR");
    }
    for entry in [register::LVT_TIMER, register::LVT_LINT0, register::LVT_LINT1, register::LVT_ERROR] {
        apic::write(entry, apic::MASKED | 0x7b);
        check_eq!(apic::read(entry), apic::MASKED | 0x7b, "the local vector {entry:#x}");
    }
    for divide in [0, 3, 8, 0xb] {
        apic::write(register::TIMER_DIVIDE, divide);
        check_eq!(apic::read(register::TIMER_DIVIDE), divide, "the timer's divider");
    }
    apic::write(register::SVR, 0x1ef);
    check_eq!(apic::read(register::SVR) & 0x1ff, 0x1ef, "SVR");
    Ok(())
}

/// Reserved bits, and registers that are only read, only written, or absent.
fn x2apic_faults() -> Outcome {
    if crate::is_bare() {
        skip!("QEMU takes more");
    }
    if !apic::is_x2apic() {
        skip!("no x2APIC");
    }
    let is_gp =
        |trap: Option<trap::Trap>| trap.is_some_and(|trap| trap.vector == vector::GP && trap.error == 0);
    for number in [0x800, 0x801, 0x80b, 0x80e, 0x831, 0x83f, 0x840, 0x8ff] {
        let trap = trap::caught(|| _ = cpu::read_msr(number));
        check!(is_gp(trap), "RDMSR of {number:#x} is no #GP");
    }
    for number in [0x802, 0x803, 0x80a, 0x80d, 0x80e, 0x810, 0x820, 0x831, 0x839, 0x840, 0x8ff] {
        let trap = trap::caught(|| cpu::write_msr(number, 0));
        check!(is_gp(trap), "WRMSR of {number:#x} is no #GP");
    }
    for (number, value) in
        [(0x808, 0x100), (0x80b, 1), (0x828, 1), (0x832, 1 << 63), (0x83f, 0x161), (0x838, 1 << 32)]
    {
        let trap = trap::caught(|| cpu::write_msr(number, value));
        check!(is_gp(trap), "WRMSR of {value:#x} to {number:#x} is no #GP");
    }
    Ok(())
}

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

/// What CR8 does not take, and what it takes from each register.
fn cr8_faults() -> Outcome {
    if crate::is_bare() {
        skip!("QEMU takes reserved bits");
    }
    let before: u64 = read_control!("cr8");
    for bad in [1_u64 << 4, 1 << 63] {
        let trap = trap::caught(|| write_control!("cr8", bad));
        check!(trap.is_some_and(|trap| trap.vector == vector::GP), "CR8 takes {bad:#x}");
    }
    check_eq!(read_control!("cr8"), before, "CR8");
    let mut input = probe::pattern(3);
    for register in [0, 3, 5, 8, 15_u8] {
        // RSP is no register of the probe's; the numbers of the others are those of instructions.
        let place = [0, 2, 3, 1, 0, 6, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14][usize::from(register)];
        input[place] = 9;
        let code = [0x44 | register >> 3, 0x0f, 0x22, 0xc0 | register & 7];
        // SAFETY: changes CR8 only.
        let done = unsafe { probe::execute(&code, &input, 0) };
        let now: u64 = read_control!("cr8");
        write_control!("cr8", before);
        check!(done.is_ok(), "from register {register}: a fault");
        check_eq!(now, 9, "CR8 from register {register}");
        input[place] = !0;
    }
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

/// The switch in SVR.
fn disabled() -> Outcome {
    if crate::is_bare() {
        skip!("QEMU lets the mask be taken away");
    }
    log::begin();
    apic::write(register::SVR, 0xff);
    check!(apic::read(register::LVT_TIMER) & apic::MASKED != 0, "the timer's vector is not masked");
    apic::write(register::LVT_TIMER, 0x55);
    check!(apic::read(register::LVT_TIMER) & apic::MASKED != 0, "the mask can be taken away");
    apic::write(register::SVR, 0x1ff);
    apic::send_to_self(0x61);
    check!(log::wait_for(1), "no interrupt after the APIC was switched on");
    Ok(())
}

fn illegal_vector() -> Outcome {
    if crate::is_bare() {
        skip!("QEMU sends it");
    }
    apic::write(register::ESR, 0);
    apic::send(apic::id(), icr::ASSERT | 5);
    apic::write(register::ESR, 0);
    let errors = apic::read(register::ESR);
    // Send illegal vector, receive illegal vector.
    check!(errors & 0x60 != 0, "ESR is {errors:#x}");
    apic::write(register::ESR, 0);
    check_eq!(apic::read(register::ESR), 0, "ESR afterwards");
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
