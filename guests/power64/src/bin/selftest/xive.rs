// SPDX-License-Identifier: Apache-2.0 OR MIT
//! XIVE (LoPAR, the appendix on it).

use turnstile_guests_power64::hcall::{self, call, call4};
use turnstile_guests_power64::platform::{Controller, platform};
use turnstile_guests_power64::test::{Outcome, Test};
use turnstile_guests_power64::xive::{self, esb, tima};
use turnstile_guests_power64::{check, check_eq, cpu, irq, mmio, skip, smp, timer};

pub const TESTS: &[Test] = &[
    Test { name: "xive-state", run: states },
    Test { name: "xive-priority", run: presented },
    Test { name: "xive-configuration", run: configuration },
    Test { name: "xive-wrong", run: refused },
    Test { name: "xive-reset", run: reset },
];

fn server() -> u64 {
    u64::from(smp::server(0))
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
