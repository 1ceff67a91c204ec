// SPDX-License-Identifier: Apache-2.0 OR MIT
//! External interrupts: by XICS or XIVE, whichever there is (LoPAR, section 14.5, and the appendix on XIVE).

use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

use turnstile_guests_power64::hcall::{self, call, call4};
use turnstile_guests_power64::platform::{Controller, platform};
use turnstile_guests_power64::test::{Outcome, Stop, Test};
use turnstile_guests_power64::xive::{self, esb, tima};
use turnstile_guests_power64::{check, check_eq, cpu, irq, mmio, skip, smp, timer};

/// Other CPUs wait until it is not zero.
static GO_ON: AtomicU64 = AtomicU64::new(0);

pub const TESTS: &[Test] = &[
    Test { name: "interrupts-self", run: to_itself },
    Test { name: "interrupts-ceded", run: ceded },
    Test { name: "interrupts-doorbell", run: doorbell },
    Test { name: "interrupts-doorbells", run: doorbells },
    Test { name: "xics-priority", run: priority },
    Test { name: "xics-poll", run: poll },
    Test { name: "xics-nested", run: nested },
    Test { name: "xics-wrong", run: wrong },
    Test { name: "xive-state", run: states },
    Test { name: "xive-priority", run: presented },
    Test { name: "xive-configuration", run: configuration },
    Test { name: "xive-wrong", run: refused },
    Test { name: "xive-reset", run: reset },
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

fn need_xics() -> Outcome {
    if platform().controller != Controller::Xics {
        skip!("no XICS");
    }
    Ok(())
}

fn server() -> u64 {
    u64::from(smp::server(0))
}

fn accept() -> u64 {
    call4(hcall::XIRR, [0xff, 0, 0, 0]).1[0] & 0xffff_ffff
}

/// A request is presented if it is more favored than the CPU's priority: a smaller number.
fn priority() -> Outcome {
    need_xics()?;
    for (current, request, presented) in
        [(0xff, 4, true), (4, 4, false), (5, 4, true), (0, 0, false), (1, 0, true)]
    {
        call(hcall::CPPR, [current, 0, 0, 0]);
        call(hcall::IPI, [server(), request, 0, 0]);
        let xirr = accept();
        let expected = if presented { current << 24 | 2 } else { current << 24 };
        check_eq!(xirr, expected, "request {request} at priority {current}: XIRR");
        call(hcall::IPI, [server(), 0xff, 0, 0]);
        if presented {
            // The priority is that of what is in service, until its end.
            let (_, [polled, ..]) = call4(hcall::IPOLL, [server(), 0, 0, 0]);
            check_eq!(polled >> 24 & 0xff, request, "the priority in service");
            call(hcall::EOI, [xirr, 0, 0, 0]);
        }
    }
    call(hcall::CPPR, [0xff, 0, 0, 0]);
    check_eq!(accept(), 0xff00_0000, "XIRR at the end");
    Ok(())
}

/// H_IPOLL tells without accepting.
fn poll() -> Outcome {
    need_xics()?;
    call(hcall::IPI, [server(), 7, 0, 0]);
    for _ in 0..3 {
        let (status, [xirr, mfrr, ..]) = call4(hcall::IPOLL, [server(), 0, 0, 0]);
        check_eq!(status, hcall::SUCCESS, "the status");
        check_eq!(xirr & 0xff_ffff, 2, "the source");
        check_eq!(mfrr & 0xff, 7, "the request");
    }
    let xirr = accept();
    check_eq!(xirr, 0xff00_0002, "XIRR");
    call(hcall::IPI, [server(), 0xff, 0, 0]);
    call(hcall::EOI, [xirr, 0, 0, 0]);
    Ok(())
}

/// A more favored request is presented while one is in service, and both end.
fn nested() -> Outcome {
    need_xics()?;
    call(hcall::IPI, [server(), 9, 0, 0]);
    let outer = accept();
    call(hcall::IPI, [server(), 3, 0, 0]);
    let inner = accept();
    check_eq!(inner, 9 << 24 | 2, "XIRR of the inner one");
    call(hcall::IPI, [server(), 0xff, 0, 0]);
    call(hcall::EOI, [inner, 0, 0, 0]);
    check_eq!(accept(), 9 << 24, "XIRR between the ends");
    call(hcall::EOI, [outer, 0, 0, 0]);
    check_eq!(accept(), 0xff00_0000, "XIRR at the end");
    Ok(())
}

fn wrong() -> Outcome {
    need_xics()?;
    check!(call(hcall::IPI, [0xdead, 4, 0, 0]) < 0, "H_IPI to nobody succeeds");
    check!(call(hcall::IPOLL, [0xdead, 0, 0, 0]) < 0, "H_IPOLL of nobody succeeds");
    // The end of a source that is none: whatever it answers, it does no harm.
    call(hcall::EOI, [0xff00_dead, 0, 0, 0]);
    check_eq!(accept(), 0xff00_0000, "XIRR");
    Ok(())
}

fn need_xive() -> Outcome {
    if !matches!(platform().controller, Controller::Xive(_)) {
        skip!("no XIVE");
    }
    Ok(())
}

fn page() -> u64 {
    xive::management_page(0)
}

fn state() -> u64 {
    mmio::read64_big(page() + esb::GET) & 3
}

/// The two bits of a source: pending, and triggered again; off.
fn states() -> Outcome {
    need_xive()?;
    check_eq!(state(), 0, "the state at first");
    mmio::write64(xive::trigger_page(0), 0);
    check_eq!(state(), 2, "pending");
    mmio::write64(xive::trigger_page(0), 0);
    check_eq!(state(), 3, "pending and triggered again");
    cpu::take_interrupts();
    // The handler sees that it came again, and triggers it itself.
    check!(
        timer::wait(100_000, || {
            cpu::take_interrupts();
            irq::count(irq::IPI) == 2
        }),
        "{} came",
        irq::count(irq::IPI)
    );
    check_eq!(state(), 0, "the state after the ends");
    mmio::read64(page() + esb::SET_OFF);
    mmio::write64(xive::trigger_page(0), 0);
    cpu::take_interrupts();
    check_eq!(irq::count(irq::IPI), 2, "taken, while it is off");
    check_eq!(state(), 1, "off");
    mmio::read64(page() + esb::SET_READY);
    Ok(())
}

/// The priority of the presentation holds back what is not more favored.
fn presented() -> Outcome {
    need_xive()?;
    let presentation = xive::facts().presentation;
    mmio::write8(presentation + tima::CPPR, xive::PRIORITY as u8);
    mmio::write64(xive::trigger_page(0), 0);
    cpu::take_interrupts();
    check_eq!(irq::count(irq::IPI), 0, "taken at its own priority");
    mmio::write8(presentation + tima::CPPR, 0xff);
    check!(
        timer::wait(100_000, || {
            cpu::take_interrupts();
            irq::count(irq::IPI) == 1
        }),
        "it does not come"
    );
    check_eq!(mmio::read8(presentation + tima::CPPR), 0xff, "the priority");
    Ok(())
}

/// What was configured is told.
fn configuration() -> Outcome {
    need_xive()?;
    let (status, [target, priority, event, _]) =
        call4(hcall::INT_GET_SOURCE_CONFIG, [0, xive::source(0), 0, 0]);
    check_eq!(status, hcall::SUCCESS, "the source's status");
    check_eq!(target, server(), "its target");
    check_eq!(priority & 0xff, xive::PRIORITY, "its priority");
    check_eq!(event, 2, "its event");
    let (status, r) =
        hcall::call9(hcall::INT_GET_QUEUE_CONFIG, [0, server(), xive::PRIORITY, 0, 0, 0, 0, 0, 0]);
    check_eq!(status, hcall::SUCCESS, "the queue's status");
    check_eq!(r[1], xive::queue(0), "its address");
    check_eq!(r[2], 16, "its size");
    let (status, [_, size, ..]) = call4(hcall::INT_GET_QUEUE_INFO, [0, server(), xive::PRIORITY, 0]);
    check_eq!(status, hcall::SUCCESS, "the queue page's status");
    check!(size != 0, "its size is zero");
    Ok(())
}

/// Arguments that are wrong, one at a time.
fn refused() -> Outcome {
    need_xive()?;
    let queue = |target, priority, address, size| {
        hcall::call9(hcall::INT_SET_QUEUE_CONFIG, [1, target, priority, address, size, 0, 0, 0, 0]).0
    };
    let source = |flags, source, target, priority| {
        hcall::call9(hcall::INT_SET_SOURCE_CONFIG, [flags, source, target, priority, 7, 0, 0, 0, 0]).0
    };
    check!(call(hcall::INT_GET_SOURCE_INFO, [0, 0xdead_beef, 0, 0]) < 0, "a source that is none is told");
    check!(source(2, 0xdead_beef, server(), 6) < 0, "a source that is none is taken");
    check!(source(2, xive::source(0), 0xdead, 6) < 0, "a target that is none is taken");
    check!(source(2, xive::source(0), server(), 9) < 0, "a source's priority 9 is taken");
    check!(queue(0xdead, 6, xive::queue(0), 16) < 0, "a queue of nobody is taken");
    check!(queue(server(), 9, xive::queue(0), 16) < 0, "a queue's priority 9 is taken");
    check!(queue(server(), 6, xive::queue(0) + 0x100, 16) < 0, "a queue that is not aligned is taken");
    check!(
        queue(server(), 6, turnstile_guests_power64::crash::outside(), 16) < 0,
        "a queue outside is taken"
    );
    check!(queue(server(), 6, xive::queue(0), 63) < 0, "a queue of 2^63 bytes is taken");
    Ok(())
}

/// After H_INT_RESET nothing comes, and everything can be set up again.
fn reset() -> Outcome {
    need_xive()?;
    check_eq!(call(hcall::INT_RESET, [0; 4]), hcall::SUCCESS, "H_INT_RESET");
    if !crate::is_bare() {
        mmio::write64(xive::trigger_page(0), 0);
        cpu::take_interrupts();
        check_eq!(irq::count(irq::IPI), 0, "taken after the reset");
    }
    check!(irq::init(), "it cannot be set up again");
    irq::send(0);
    cpu::take_interrupts();
    check_eq!(irq::count(irq::IPI), 1, "taken when it is set up again");
    Ok(())
}
