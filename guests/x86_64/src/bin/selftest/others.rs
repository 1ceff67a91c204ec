// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The other CPUs, which tests start and stop together.

use core::sync::atomic::{AtomicBool, Ordering::SeqCst};

use turnstile_guests_x86_64::test::Outcome;
use turnstile_guests_x86_64::{apic, check, cpu, skip, smp};

static STOP: AtomicBool = AtomicBool::new(false);

/// Says whether the others are to stop.
pub fn are_to_stop() -> bool {
    STOP.load(SeqCst)
}

/// Says whether the others are to stop from now on.
pub fn set_stop(stop: bool) {
    STOP.store(stop, SeqCst);
}

/// Starts all others.
pub fn start(work: fn(u64), argument: u64) -> Outcome {
    if smp::count() == 1 {
        skip!("one CPU");
    }
    set_stop(false);
    for index in smp::others() {
        check!(smp::start(index, work, argument), "CPU {index} does not start");
    }
    Ok(())
}

/// Stops all others, also those that wait for an interrupt.
pub fn stop() -> Outcome {
    set_stop(true);
    for index in smp::others() {
        apic::send_to(smp::apic_id(index), 0x3f);
        check!(smp::wait_done(index), "CPU {index} does not stop");
    }
    Ok(())
}

/// Takes interrupts by HLT or, with 1, polling, until it is told to stop.
pub fn take(polling: u64) {
    cpu::unmask();
    while !are_to_stop() {
        match polling {
            0 => {
                cpu::mask();
                if !are_to_stop() {
                    cpu::wait();
                }
                cpu::unmask();
            }
            _ => cpu::relax(),
        }
    }
}
