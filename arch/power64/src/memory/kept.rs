// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory that a VM has had and that nobody else may get: the interrupt controller may write to it, because the firmware has not
//! taken an event queue back. It is never given out again.

use alloc::vec::Vec;

use spin::Mutex;

use super::ram::GuestRam;

static KEPT: Mutex<Vec<GuestRam>> = Mutex::new(Vec::new());

/// Keeps memory out of use.
pub fn keep(ram: GuestRam) {
    let mut kept = KEPT.lock();
    if ram.size() != 0 && !kept.contains(&ram) {
        kept.push(ram);
    }
}

/// Says whether memory is kept out of use.
pub fn is_kept(ram: &GuestRam) -> bool {
    KEPT.lock().contains(ram)
}

/// How many bytes are.
pub fn bytes() -> u64 {
    KEPT.lock().iter().map(GuestRam::kept_bytes).sum()
}
