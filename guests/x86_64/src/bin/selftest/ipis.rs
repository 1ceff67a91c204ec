// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupts between CPUs.

use core::sync::atomic::Ordering::SeqCst;

use turnstile_guests_x86_64::apic::{self, icr};
use turnstile_guests_x86_64::test::{Outcome, Test};
use turnstile_guests_x86_64::{check, check_eq, cpu, irq, skip, smp, timer};

use crate::others::{self, take};

pub const TESTS: &[Test] = &[
    Test { name: "cpus-ipi-each", run: each },
    Test { name: "cpus-ipi-shorthands", run: shorthands },
    Test { name: "cpus-ipi-logical", run: logical },
    Test { name: "cpus-ipi-lowest", run: lowest },
    Test { name: "cpus-ipi-halted", run: halted },
    Test { name: "cpus-nmi", run: nmi },
];

fn each() -> Outcome {
    for polling in [1, 0] {
        others::start(take, polling)?;
        for index in smp::others() {
            for round in 1..=20 {
                apic::send_to(smp::apic_id(index), 0x61);
                let came = timer::wait(1_000_000, || irq::count_on(index, 0x61) == round);
                check!(came, "CPU {index} took {} of {round}", irq::count_on(index, 0x61));
            }
        }
        others::stop()?;
        irq::reset_counts();
    }
    Ok(())
}

fn all_took(vector: u8, count: u32, with_this: u32) -> Outcome {
    cpu::take_interrupts();
    for index in smp::others() {
        let came = timer::wait(1_000_000, || irq::count_on(index, vector) == count);
        check!(came, "CPU {index} took {} of {count}, vector {vector:#x}", irq::count_on(index, vector));
    }
    check_eq!(irq::count(vector), with_this, "of vector {vector:#x}, this CPU took");
    Ok(())
}

fn shorthands() -> Outcome {
    others::start(take, 0)?;
    apic::send(0, icr::OTHERS | icr::ASSERT | 0x61);
    all_took(0x61, 1, 0)?;
    apic::send(0, icr::ALL | icr::ASSERT | 0x62);
    all_took(0x62, 1, 1)?;
    let everybody = if apic::is_x2apic() { u32::MAX } else { 0xff };
    apic::send(everybody, icr::ASSERT | 0x63);
    all_took(0x63, 1, 1)?;
    others::stop()
}

fn logical() -> Outcome {
    if !apic::is_x2apic() {
        skip!("no x2APIC");
    }
    others::start(take, 0)?;
    // All of this CPU's cluster.
    let cluster = smp::apic_id(0) >> 4;
    apic::send(cluster << 16 | 0xffff, icr::LOGICAL | icr::ASSERT | 0x61);
    cpu::take_interrupts();
    for index in 0..smp::count() {
        let member = u32::from(smp::apic_id(index) >> 4 == cluster);
        timer::wait(100_000, || irq::count_on(index, 0x61) == member);
        check_eq!(irq::count_on(index, 0x61), member, "CPU {index} took");
    }
    others::stop()
}

/// Just one of those named takes it.
fn lowest() -> Outcome {
    if !apic::is_x2apic() {
        skip!("no x2APIC");
    }
    others::start(take, 0)?;
    for round in 1..=10 {
        apic::send(0xffff, icr::LOWEST | icr::LOGICAL | icr::ASSERT | 0x61);
        let sum = || (0..smp::count()).map(|index| irq::count_on(index, 0x61)).sum::<u32>();
        cpu::take_interrupts();
        timer::wait(1_000_000, || sum() >= round);
        cpu::take_interrupts();
        check_eq!(sum(), round, "all took");
    }
    others::stop()
}

/// There and back, both in HLT.
fn halted() -> Outcome {
    fn answer(vector: u8) {
        if cpu::this().index() != 0 && vector == 0x61 {
            apic::send_to(smp::apic_id(0), 0x62);
        }
    }
    others::start(take, 0)?;
    irq::set_handler(Some(answer));
    for round in 1..=200 {
        apic::send_to(smp::apic_id(1), 0x61);
        let end = timer::now() + timer::ticks(1_000_000);
        timer::arm(0x51, end);
        while irq::count(0x62) != round && timer::now() < end {
            cpu::wait();
        }
        check_eq!(irq::count(0x62), round, "answers");
    }
    timer::disarm();
    others::stop()
}

/// An NMI gets through masked interrupts, and ends HLT.
fn nmi() -> Outcome {
    others::start(
        |_| {
            while !others::are_to_stop() {
                cpu::halt_masked();
            }
        },
        0,
    )?;
    for index in smp::others() {
        let count = || cpu::of(index).nmis.load(SeqCst);
        let before = count();
        apic::send(smp::apic_id(index), icr::NMI | icr::ASSERT);
        check!(timer::wait(1_000_000, || count() == before + 1), "CPU {index} took no NMI");
    }
    others::set_stop(true);
    for index in smp::others() {
        apic::send(smp::apic_id(index), icr::NMI | icr::ASSERT);
        check!(smp::wait_done(index), "CPU {index} does not stop");
    }
    Ok(())
}
