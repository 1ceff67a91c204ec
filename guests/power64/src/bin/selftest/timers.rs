// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Timebase and decrementer (Power ISA 3.0B Book III, chapter 5).

use turnstile_guests_power64::cpu::spr;
use turnstile_guests_power64::test::{Outcome, Test};
use turnstile_guests_power64::{check, check_eq, cpu, irq, mfspr, mtspr, timer};

pub const TESTS: &[Test] = &[
    Test { name: "timers-timebase", run: timebase },
    Test { name: "timers-decrementer", run: decrementer },
    Test { name: "timers-masked", run: masked },
    Test { name: "timers-ceded", run: ceded },
    Test { name: "timers-expired", run: expired },
    Test { name: "timers-many", run: many },
];

fn timebase() -> Outcome {
    let mut last = timer::now();
    for _ in 0..10_000 {
        let now = timer::now();
        check!(now >= last, "it goes back from {last:#x} to {now:#x}");
        last = now;
    }
    Ok(())
}

fn decrementer() -> Outcome {
    mtspr!(spr::DEC, 0x4000_0000);
    let first = mfspr!(spr::DEC);
    timer::wait(10, || false);
    let second = mfspr!(spr::DEC);
    check!(second < first && first <= 0x4000_0000, "it goes from {first:#x} to {second:#x}");
    Ok(())
}

/// It comes when interrupts are let in, and not before.
fn masked() -> Outcome {
    timer::arm(timer::now() + timer::ticks(50));
    timer::wait(500, || false);
    check_eq!(irq::count(irq::TIMER), 0, "taken while masked");
    // An emulator whose host is busy is late itself.
    timer::wait(100_000, || {
        cpu::take_interrupts();
        irq::count(irq::TIMER) != 0
    });
    check_eq!(irq::count(irq::TIMER), 1, "taken");
    cpu::take_interrupts();
    check_eq!(irq::count(irq::TIMER), 1, "taken once");
    Ok(())
}

/// It ends H_CEDE, not too early.
fn ceded() -> Outcome {
    for microseconds in [100, 3000, 20_000] {
        let due = timer::now() + timer::ticks(microseconds);
        timer::arm(due);
        let before = irq::count(irq::TIMER);
        while irq::count(irq::TIMER) == before {
            cpu::wait();
        }
        let now = timer::now();
        check!(now >= due, "{} ticks too early", due - now);
        // An emulator whose host is busy is late itself.
        check!(now - due < timer::ticks(1_000_000), "{} microseconds late", timer::microseconds(now - due));
    }
    Ok(())
}

/// Waits by H_CEDE, long enough for an emulator whose host is busy.
fn wait_for(count: u32) -> bool {
    timer::wait(1_000_000, || {
        cpu::wait();
        irq::count(irq::TIMER) == count
    })
}

/// H_CEDE with an expired decrementer does not wait.
fn expired() -> Outcome {
    for _ in 0..100 {
        timer::arm(timer::now());
        timer::wait(5, || false);
        let before = irq::count(irq::TIMER);
        // An emulator may show that it has expired a little before it raises the interrupt.
        check!(wait_for(before + 1), "it does not come");
        check_eq!(irq::count(irq::TIMER), before + 1, "interrupts");
    }
    Ok(())
}

/// Short ones, waited for and polled for in turns. QEMU that counts instructions raises one that is polled for only when it
/// stops for something else, so there are not many.
fn many() -> Outcome {
    for round in 0..60_u32 {
        timer::arm(timer::now() + 40 * u64::from(round));
        let came = timer::wait(1_000_000, || {
            if round % 4 == 0 {
                cpu::take_interrupts()
            } else {
                cpu::wait()
            }
            irq::count(irq::TIMER) == round + 1
        });
        check!(came, "round {round}: it does not come");
    }
    Ok(())
}
