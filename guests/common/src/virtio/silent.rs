// SPDX-License-Identifier: Apache-2.0 OR MIT
//! For tests: a machine whose device behind MMIO agrees to all and does nothing.

extern crate std;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use core::sync::atomic::{AtomicU64, Ordering};

use super::{DEVICE_ID, MMIO, Machine};
use crate::clock::{self, Clock};
use crate::memory::Region;
use crate::pci::Config;

/// Where the device is.
const BASE: u64 = 0xa00_0000;

static MEMORY: Mutex<BTreeMap<u64, u8>> = Mutex::new(BTreeMap::new());
static TICKS: AtomicU64 = AtomicU64::new(0);
static CLOCK: Once = Once::new();
/// One test at a time.
static TURN: Mutex<()> = Mutex::new(());

fn read(address: u64, size: u8) -> u64 {
    if address == BASE + MMIO.device_features.0 {
        return 0xffff_ffff;
    }
    let memory = MEMORY.lock().unwrap();
    let byte = |at| u64::from(memory.get(&at).copied().unwrap_or(0));
    (0..u64::from(size)).map(|at| byte(address + at) << (8 * at)).sum()
}

fn write(address: u64, size: u8, value: u64) {
    let mut memory = MEMORY.lock().unwrap();
    memory.extend((address..).zip(value.to_le_bytes()).take(size.into()));
}

/// Each look at it takes a millisecond.
fn clock() -> Clock {
    Clock { now: || TICKS.fetch_add(1, Ordering::Relaxed), frequency: 1000, relax: || {} }
}

/// Returns the machine, whose device has this type; a wait on it takes no time.
#[expect(unsafe_code, reason = "the clock is set once, before anybody uses it")]
pub fn machine(kind: u16) -> (Machine, MutexGuard<'static, ()>) {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: other tests have clocks of their own.
    CLOCK.call_once(|| unsafe { clock::set(clock) });
    MEMORY.lock().unwrap().clear();
    write(BASE + DEVICE_ID, 4, kind.into());
    let machine = Machine {
        config: Config { read: |_, _, _| !0, write: |_, _, _, _| {} },
        mmio: Some(BASE),
        window: Region::NOWHERE,
        read,
        write,
        touch: |_| {},
        probe: |_| {},
        message: |_| None,
        interrupts: || 0,
        sleep: |_| {},
        memory: 0x10_0000,
        elsewhere: [0; 8],
    };
    (machine, turn)
}
