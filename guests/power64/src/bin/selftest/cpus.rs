// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The other CPUs: started, stopped, woken, sent to.

use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

use turnstile_guests_power64::platform::MAX_CPUS;
use turnstile_guests_power64::state::{self, State};
use turnstile_guests_power64::test::{Outcome, Test};
use turnstile_guests_power64::{check, check_eq, cpu, hcall, irq, skip, smp, timer};

pub const TESTS: &[Test] = &[
    Test { name: "cpus-start", run: start },
    Test { name: "cpus-order", run: order },
    Test { name: "cpus-again", run: again },
    Test { name: "cpus-wrong", run: wrong },
    Test { name: "cpus-prod", run: prod },
    Test { name: "cpus-wake", run: wake },
    Test { name: "cpus-reset", run: reset },
    Test { name: "cpus-running", run: running },
    Test { name: "cpus-timers", run: timers },
    Test { name: "cpus-state", run: states },
];

static SEEN: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];
static GO_ON: AtomicU64 = AtomicU64::new(0);

fn need() -> Outcome {
    if smp::count() < 2 {
        skip!("one CPU");
    }
    GO_ON.store(0, SeqCst);
    SEEN.iter().for_each(|seen| seen.store(0, SeqCst));
    Ok(())
}

fn start_all(work: fn(u64)) -> Outcome {
    for index in smp::others() {
        check!(smp::start(index, work, 0x5eed + index as u64), "CPU {index} does not start");
    }
    Ok(())
}

fn wait_all() -> Outcome {
    for index in smp::others() {
        check!(smp::wait_done(index), "CPU {index} does not end");
        check!(
            timer::wait(2_000_000, || smp::state(index) == 0),
            "CPU {index} does not stop: {}",
            smp::state(index)
        );
    }
    Ok(())
}

fn seen() -> &'static AtomicU64 {
    &SEEN[cpu::this().index()]
}

fn start() -> Outcome {
    need()?;
    start_all(|argument| seen().store(argument, SeqCst))?;
    wait_all()?;
    for index in smp::others() {
        check_eq!(SEEN[index].load(SeqCst), 0x5eed + index as u64, "the argument of CPU {index}");
    }
    Ok(())
}

/// A started CPU begins big-endian, though this partition takes its interrupts little-endian.
fn order() -> Outcome {
    need()?;
    start_all(|argument| seen().store(argument, SeqCst))?;
    wait_all()?;
    for index in smp::others() {
        check_eq!(cpu::of(index).big_endian.load(SeqCst), 1, "CPU {index} begins big-endian");
    }
    Ok(())
}

/// Stopped and started over and over.
fn again() -> Outcome {
    need()?;
    for round in 1..=50 {
        start_all(|_| _ = seen().fetch_add(1, SeqCst))?;
        wait_all()?;
        for index in smp::others() {
            check_eq!(SEEN[index].load(SeqCst), round, "starts of CPU {index}");
        }
    }
    Ok(())
}

/// A CPU that runs cannot be started, one that is not there neither.
fn wrong() -> Outcome {
    need()?;
    check!(smp::start_cpu(smp::server(0), 0x2000, 0) != 0, "the CPU that runs this is started");
    check!(smp::start_cpu(0xdead, 0x2000, 0) != 0, "a CPU that is not there is started");
    check!(
        smp::start(
            1,
            |_| {
                while GO_ON.load(SeqCst) == 0 {
                    cpu::relax();
                }
            },
            0
        ),
        "CPU 1 does not start"
    );
    check!(smp::start_cpu(smp::server(1), 0x2000, 0) != 0, "a CPU that runs is started");
    check_eq!(smp::state(1), 2, "the state of one that runs");
    GO_ON.store(1, SeqCst);
    wait_all()
}

/// H_PROD wakes a CPU from H_CEDE, and is remembered if it is not there yet.
fn prod() -> Outcome {
    need()?;
    start_all(|_| {
        while GO_ON.load(SeqCst) == 0 {
            cpu::wait();
            seen().fetch_add(1, SeqCst);
        }
    })?;
    for round in 0..100_u64 {
        for index in smp::others() {
            let before = SEEN[index].load(SeqCst);
            if round % 2 == 0 {
                timer::wait(50, || false);
            }
            hcall::call(hcall::PROD, [u64::from(smp::server(index)), 0, 0, 0]);
            check!(
                timer::wait(2_000_000, || SEEN[index].load(SeqCst) != before),
                "round {round}: CPU {index} does not wake"
            );
        }
    }
    GO_ON.store(1, SeqCst);
    for index in smp::others() {
        hcall::call(hcall::PROD, [u64::from(smp::server(index)), 0, 0, 0]);
    }
    wait_all()
}

/// A system reset ends H_CEDE. One that comes before the CPU waits does not end the wait: there is another one then, but none while
/// the CPU may still handle the one before. Its handler would lose its return address in SRR0.
fn reset() -> Outcome {
    need()?;
    if crate::is_bare() {
        skip!("QEMU's own partition waits on");
    }
    start_all(|_| {
        while GO_ON.load(SeqCst) == 0 {
            cpu::wait();
            seen().fetch_add(1, SeqCst);
        }
    })?;
    for index in smp::others() {
        let resets = || cpu::of(index).resets.load(SeqCst);
        let waits = || SEEN[index].load(SeqCst);
        let mut ended = false;
        for _ in 0..100 {
            let before = (resets(), waits());
            hcall::call(hcall::SIGNAL_SYS_RESET, [u64::from(smp::server(index)), 0, 0, 0]);
            check!(timer::wait(2_000_000, || resets() != before.0), "CPU {index} takes no reset");
            ended = timer::wait(10_000, || waits() != before.1);
            if ended {
                break;
            }
            // An interrupt is taken when the handler has ended.
            irq::send(index);
            check!(timer::wait(2_000_000, || waits() != before.1), "CPU {index} takes no interrupt");
        }
        check!(ended, "CPU {index} waits on");
    }
    GO_ON.store(1, SeqCst);
    smp::others().for_each(irq::send);
    wait_all()
}

fn ping(what: fn(u64)) -> Outcome {
    need()?;
    start_all(what)?;
    for round in 0..200 {
        for index in smp::others() {
            let before = irq::count_on(index, irq::IPI);
            if round % 2 == 0 {
                timer::wait(20, || false);
            }
            irq::send(index);
            let came = timer::wait(2_000_000, || irq::count_on(index, irq::IPI) != before);
            check!(came, "round {round}: CPU {index} takes nothing");
            check_eq!(irq::count_on(index, irq::IPI), before + 1, "round {round}: taken by CPU {index}");
        }
    }
    GO_ON.store(1, SeqCst);
    smp::others().for_each(irq::send);
    wait_all()
}

/// Interrupts to CPUs in H_CEDE.
fn wake() -> Outcome {
    ping(|_| {
        while GO_ON.load(SeqCst) == 0 {
            cpu::wait();
        }
    })
}

/// Interrupts to CPUs that run.
fn running() -> Outcome {
    ping(|_| {
        cpu::unmask();
        while GO_ON.load(SeqCst) == 0 {
            cpu::relax();
        }
        cpu::mask();
    })
}

/// Each has a decrementer of its own.
fn timers() -> Outcome {
    need()?;
    start_all(|_| {
        for _ in 0..20 {
            let before = irq::count(irq::TIMER);
            timer::arm(timer::now() + timer::ticks(500 + 100 * cpu::this().index() as u64));
            while irq::count(irq::TIMER) == before {
                cpu::wait();
            }
            seen().fetch_add(1, SeqCst);
        }
    })?;
    wait_all()?;
    for index in smp::others() {
        check_eq!(SEEN[index].load(SeqCst), 20, "decrementer interrupts of CPU {index}");
    }
    Ok(())
}

/// Registers of one CPU do not come to another.
fn states() -> Outcome {
    fn hold(_: u64) {
        let this = cpu::this().index() as u64;
        for round in 0..10 {
            // Segments are no CPU's own: the buffer keeps those of other CPUs of the same VM.
            let own = |(_, state): &(usize, &State)| state.name != "segments";
            for (kind, state) in state::ALL.iter().enumerate().filter(own) {
                let seed = this << 32 | round << 8 | (kind as u64) << 1 | 1;
                (state.fill)(seed);
                timer::arm(timer::now() + timer::ticks(100));
                cpu::wait();
                if !(state.holds)(seed) {
                    seen().fetch_or(1 << kind, SeqCst);
                }
            }
        }
    }
    need()?;
    start_all(hold)?;
    hold(0);
    wait_all()?;
    for (index, seen) in SEEN.iter().enumerate().take(smp::count()) {
        check_eq!(seen.load(SeqCst), 0, "kinds of registers of CPU {index} that have changed");
    }
    Ok(())
}
