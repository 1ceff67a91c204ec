// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When to look at a VM's devices because one of their lines may rise without an access.
//!
//! The CPU where the VM last touched its devices has a timer for them. When it fires, that CPU looks at the devices of its VMs whose
//! time has come. No other CPU does anything for them, and no other VM's devices are touched.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::arch::{cpu, time};

/// The number of the first service.
pub const FIRST_SERVICE: usize = 128;
/// No time.
const NEVER: u64 = u64::MAX;

/// One alarm. Changed by who holds its devices' lock.
#[derive(Debug)]
pub struct Alarm {
    /// The machine's count of time.
    at: AtomicU64,
    /// The CPU that rings.
    cpu: AtomicUsize,
}

/// The VMs' alarms, by their numbers, and from [`FIRST_SERVICE`] on those of services.
static ALARMS: [Alarm; 1 << u8::BITS] =
    [const { Alarm { at: AtomicU64::new(NEVER), cpu: AtomicUsize::new(0) } }; 1 << u8::BITS];

/// Lets this CPU ring for a VM at this time, instead of when and where it was to ring before.
#[cold]
#[cfg_attr(
    target_arch = "powerpc64",
    allow(dead_code, reason = "no device there has a line that rises by itself")
)]
pub fn set(vm: u8, at: u64) {
    set_number(vm.into(), at);
}

/// The same for whatever has this number.
#[cold]
pub fn set_number(number: usize, at: u64) {
    let alarm = &ALARMS[number];
    // Relaxed, here and below: who finds one of them old looks once more or rings for nothing. This CPU finds what it wrote.
    alarm.cpu.store(cpu::this().index, Ordering::Relaxed);
    alarm.at.store(at, Ordering::Relaxed);
    time::set_deadline(at);
}

/// Nothing is to ring for a number any more.
pub fn clear(number: usize) {
    ALARMS[number].at.store(NEVER, Ordering::Relaxed);
}

/// This CPU has rung: says for which of these numbers `look` has to look at the devices, and rings again for those whose time has
/// not come.
pub fn ring(numbers: impl Iterator<Item = usize>, mut look: impl FnMut(usize)) {
    let (here, now) = (cpu::this().index, time::ticks());
    let mut next = NEVER;
    for number in numbers {
        let alarm = &ALARMS[number];
        let at = alarm.at.load(Ordering::Relaxed);
        if alarm.cpu.load(Ordering::Relaxed) != here {
            continue;
        }
        if at <= now {
            // Not if it was set anew meanwhile: then that time is still to come.
            if alarm.at.compare_exchange(at, NEVER, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                look(number);
            }
        } else {
            next = next.min(at);
        }
    }
    if next != NEVER {
        time::set_deadline(next);
    }
}
