// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the start takes, for who asks on the command line: by phases for the hypervisor, and for each start of a VM.

use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::arch::phases::{Phase, TIMES};
use crate::arch::vm::Vm;
use crate::arch::{Uptime, println, time};

static WANTED: AtomicBool = AtomicBool::new(false);

/// Ticks of the counter, shown in microseconds.
struct Shown(u64);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanoseconds = Uptime { ticks: self.0, frequency: time::frequency() }.nanoseconds();
        write!(f, "{}.{:03} us", nanoseconds / 1000, nanoseconds % 1000)
    }
}

/// The phases, one after the other.
struct Phases;

impl fmt::Display for Phases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (phase, name)) in Phase::ALL.into_iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{name} {}", Shown(TIMES.of(phase)))?;
        }
        Ok(())
    }
}

/// From now on it is said. Before a VM starts.
pub fn want() {
    // Relaxed: the other CPUs get to know of the VMs behind this.
    WANTED.store(true, Ordering::Relaxed);
}

/// Says what the phases of the hypervisor's own start took, if that is wanted.
pub fn report() {
    if WANTED.load(Ordering::Relaxed) {
        println!("turnstile: boot: {Phases}");
    }
}

/// Says what the start of a VM took, if that is wanted: when it began, when the memory was cleared, and when it was loaded.
pub fn report_start(vm: &Vm, [begin, cleared, loaded]: [u64; 3]) {
    if !WANTED.load(Ordering::Relaxed) {
        return;
    }
    let now = time::ticks();
    println!(
        "turnstile: boot: {}: clearing {}, loading {}, its guest begins {} after the hypervisor",
        vm.name,
        Shown(cleared.wrapping_sub(begin)),
        Shown(loaded.wrapping_sub(cleared)),
        Shown(now.wrapping_sub(TIMES.begun()))
    );
}
