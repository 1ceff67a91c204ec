// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The exit frame: where a vector stores the guest's general registers.
//!
//! One frame lies at the top of each physical CPU's stack, and SP_EL2 points at it while a guest runs. The
//! light tier fills x0–x18 and x30 only; the rest stays in the CPU and is stored when an exit becomes full.

use turnstile_exitstat::{Page, Timing};

use crate::vm::Vcpu;

/// The general registers of the resident vCPU, and whose they are.
///
/// `vectors.S` knows this layout.
#[repr(C, align(16))]
pub struct Frame {
    /// x0–x18, x30, x19–x29 in this order; see [`Frame::slot`].
    slots: [u64; 31],
    /// The vCPU resident on this physical CPU.
    pub vcpu: *const Vcpu,
    /// The vCPU's statistics, and the exit that is being handled. Only the timed vectors look at it.
    pub timing: Timing,
    reserved: u64,
}

const _: () = assert!(core::mem::size_of::<Frame>() == 288);
const _: () = assert!(core::mem::offset_of!(Frame, vcpu) == 248);
const _: () = assert!(core::mem::offset_of!(Frame, timing) == 256);

impl Frame {
    /// Makes an empty frame for `vcpu`, which may keep statistics in a `page`.
    pub const fn new(vcpu: *const Vcpu, page: Option<&'static Page>) -> Self {
        Self { slots: [0; 31], vcpu, timing: Timing::new(page), reserved: 0 }
    }

    /// Returns the slot of x`n`, `n` ≤ 30.
    const fn slot(n: usize) -> usize {
        match n {
            0..=18 => n,
            30 => 19,
            _ => n + 1,
        }
    }

    /// Returns whether the light tier holds register `n` (31 is the zero register).
    #[inline(always)] // Two instructions on the light path.
    pub const fn is_light(n: usize) -> bool {
        n <= 18
    }

    /// Reads one of x0–x18.
    #[inline(always)] // One load on the light path.
    pub fn light(&self, n: usize) -> u64 {
        // The mask keeps the index inside the array for the compiler; callers pass at most 18.
        if n < 31 { self.slots[n] } else { 0 }
    }

    /// Writes one of x0–x18.
    #[inline(always)] // One store on the light path.
    pub fn set_light(&mut self, n: usize, value: u64) {
        if n < 31 {
            self.slots[n] = value;
        }
    }

    /// Reads one of x19–x30 when they have been stored; 31 reads as zero.
    #[inline(always)] // Four instructions of an SGI's exit.
    pub fn preserved(&self, n: usize) -> u64 {
        match n {
            30 => self.slots[19],
            19..=29 => self.slots[n + 1],
            _ => 0,
        }
    }

    /// Reads x`n` in a full exit; 31 reads as zero.
    pub fn get(&self, n: usize) -> u64 {
        if n < 31 { self.slots[Self::slot(n)] } else { 0 }
    }

    /// Writes x`n` in a full exit; 31 is ignored.
    pub fn set(&mut self, n: usize, value: u64) {
        if n < 31 {
            self.slots[Self::slot(n)] = value;
        }
    }

    /// Clears every general register.
    pub fn clear(&mut self) {
        self.slots = [0; 31];
    }
}
