// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The external interrupt of a guest that does not see the ring itself.

use super::ring::Ring;
use super::tima::{OsAcknowledge, OsPending, OsPriority};
use crate::cpu;

/// The only priority that is ever pending.
const PRIORITY: u8 = 0;
/// Nothing is masked.
const OPEN: u8 = 0xff;

/// Resets the ring of the resident vCPU, and masks nothing.
pub(super) fn prepare(ring: &Ring) {
    ring.reset();
    // SAFETY: the ring stays that of the resident vCPU.
    unsafe { OsPriority.store(ring.page(), OPEN) };
}

/// Interrupts the guest as soon as it lets itself be interrupted.
#[inline(always)] // One store, on the path of every interrupt.
pub(super) fn raise(ring: &Ring) {
    // SAFETY: as for `prepare`.
    unsafe { OsPending.store(ring.page(), PRIORITY) };
}

/// Takes that back.
#[inline(always)] // A load and a store, on the path of every interrupt.
pub(super) fn lower(ring: &Ring) {
    // Accepting masks that priority, and those behind it.
    OsAcknowledge.load(ring.page());
    cpu::eieio();
    // SAFETY: as for `prepare`.
    unsafe { OsPriority.store(ring.page(), OPEN) };
}
