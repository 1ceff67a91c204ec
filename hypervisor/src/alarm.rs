// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When to look at a VM's devices because one of their lines may rise without an access.
//!
//! The CPU where the VM last touched its devices has a timer for them. When it fires, that CPU looks at the devices of its VMs whose
//! time has come. No other CPU does anything for them, and no other VM's devices are touched.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::arch::{cpu, time};

/// No time.
const NEVER: u64 = u64::MAX;

/// The alarm of one VM. Changed by who holds its devices' lock.
#[derive(Debug)]
pub struct Alarm {
    /// The machine's count of time.
    at: AtomicU64,
    /// The CPU that rings.
    cpu: AtomicUsize,
}

/// The VMs' alarms, by their numbers.
static ALARMS: [Alarm; 1 << u8::BITS] =
    [const { Alarm { at: AtomicU64::new(NEVER), cpu: AtomicUsize::new(0) } }; 1 << u8::BITS];

/// Lets this CPU ring for a VM at this time, instead of when and where it was to ring before.
#[cold]
#[cfg_attr(
    target_arch = "powerpc64",
    allow(dead_code, reason = "no device there has a line that rises by itself")
)]
pub fn set(vm: u8, at: u64) {
    let alarm = &ALARMS[usize::from(vm)];
    // Relaxed, here and below: who finds one of them old looks once more or rings for nothing. This CPU finds what it wrote.
    alarm.cpu.store(cpu::this().index, Ordering::Relaxed);
    alarm.at.store(at, Ordering::Relaxed);
    time::set_deadline(at);
}

/// Nothing is to ring for a VM any more.
pub fn clear(vm: u8) {
    ALARMS[usize::from(vm)].at.store(NEVER, Ordering::Relaxed);
}

/// This CPU has rung: says for which of these VMs `look` has to look at the devices, and rings again for those whose time has not
/// come.
pub fn ring(vms: impl Iterator<Item = u8>, mut look: impl FnMut(u8)) {
    let (here, now) = (cpu::this().index, time::ticks());
    let mut next = NEVER;
    for vm in vms {
        let alarm = &ALARMS[usize::from(vm)];
        let at = alarm.at.load(Ordering::Relaxed);
        if alarm.cpu.load(Ordering::Relaxed) != here {
            continue;
        }
        if at <= now {
            look(vm);
        } else {
            next = next.min(at);
        }
    }
    if next != NEVER {
        time::set_deadline(next);
    }
}
