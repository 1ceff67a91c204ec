// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupts of CPUs to themselves and to others: by XICS or XIVE, whichever there is, and doorbells.

use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

use turnstile_guests_power64::platform::{Controller, platform};
use turnstile_guests_power64::test::{Outcome, Stop, Test};
use turnstile_guests_power64::{check, check_eq, cpu, irq, skip, smp, timer};

/// Other CPUs wait until it is not zero.
static GO_ON: AtomicU64 = AtomicU64::new(0);

pub const TESTS: &[Test] = &[
    Test { name: "interrupts-self", run: to_itself },
    Test { name: "interrupts-ceded", run: ceded },
    Test { name: "interrupts-doorbell", run: doorbell },
    Test { name: "interrupts-doorbells", run: doorbells },
];

fn to_itself() -> Outcome {
    if platform().controller == Controller::None {
        skip!("no interrupt controller");
    }
    for round in 0..1000 {
        irq::send(0);
        check_eq!(irq::count(irq::IPI), round, "taken while masked");
        cpu::take_interrupts();
        check_eq!(irq::count(irq::IPI), round + 1, "taken");
    }
    check_eq!(irq::count(irq::SPURIOUS), 0, "spurious ones");
    Ok(())
}

fn ceded() -> Outcome {
    if platform().controller == Controller::None {
        skip!("no interrupt controller");
    }
    timer::arm(timer::now() + timer::ticks(5_000_000));
    for round in 0..100 {
        irq::send(0);
        cpu::wait();
        check_eq!(irq::count(irq::IPI), round + 1, "taken");
    }
    check_eq!(irq::count(irq::TIMER), 0, "the decrementer had to help");
    Ok(())
}

/// Rings a thread's doorbell; false if that is a facility that is off.
fn ring(thread: u64) -> Result<bool, Stop> {
    let send = || {
        // SAFETY: msgsndp of r3, type 5 to a thread of this core; behind an indirect branch, for QEMU's sake.
        unsafe {
            core::arch::asm!("bcl 20, 31, 2f", "2:", "mflr 4", "addi 4, 4, 16", "mtctr 4", "bctr",
                ".long 0x7c00191c", in("r3") 5_u64 << 27 | thread, out("r4") _, out("lr") _, out("ctr") _);
        }
    };
    let trap = turnstile_guests_power64::trap::caught(send);
    if let Some(trap) = &trap {
        check!(crate::is_bare(), "msgsndp: {trap}");
    }
    Ok(trap.is_none())
}

/// A directed privileged doorbell to the thread itself: by the CPU, or by the hypervisor in its place.
fn doorbell() -> Outcome {
    for round in 0..100 {
        if !ring(0)? {
            skip!("msgsndp is a facility that is off");
        }
        check_eq!(irq::count(irq::DOORBELL), round, "taken while masked");
        cpu::take_interrupts();
        check_eq!(irq::count(irq::DOORBELL), round + 1, "taken");
    }
    Ok(())
}

/// Doorbells to the other threads of the core, which wait or run; no other core hears them.
fn doorbells() -> Outcome {
    let threads = platform().threads;
    if crate::is_bare() || threads < 2 {
        skip!("one thread");
    }
    GO_ON.store(0, SeqCst);
    check!(
        smp::start_others(|_| {
            cpu::unmask();
            while GO_ON.load(SeqCst) == 0 {
                if cpu::this().index().is_multiple_of(2) { cpu::relax() } else { cpu::wait() }
            }
            cpu::mask();
        }),
        "not all CPUs start"
    );
    for round in 0..100 {
        for thread in 1..threads {
            let before = irq::count_on(thread, irq::DOORBELL);
            check!(ring(thread as u64)?, "msgsndp is a facility that is off");
            let rung = || irq::count_on(thread, irq::DOORBELL) != before;
            check!(timer::wait(2_000_000, rung), "round {round}: thread {thread} hears nothing");
            check_eq!(irq::count_on(thread, irq::DOORBELL), before + 1, "round {round}: thread {thread}");
        }
        check!(ring(threads as u64)?, "msgsndp is a facility that is off");
    }
    for other in threads..smp::count() {
        check_eq!(irq::count_on(other, irq::DOORBELL), 0, "doorbells in another core");
    }
    check_eq!(irq::count(irq::DOORBELL), 0, "its own");
    GO_ON.store(1, SeqCst);
    smp::others().for_each(irq::send);
    for index in smp::others() {
        check!(smp::wait_done(index), "CPU {index} does not end");
    }
    Ok(())
}
