// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The exit frame: where a vector stores the guest's general registers.
//!
//! One frame lies at the top of each physical CPU's stack, and SP_EL2 points at it while a guest runs. A vector stores what its
//! light handler may change; the rest stays in the CPU, and is stored when more is needed: x0–x18 and x30 for the wide
//! handlers, all for a full exit.

use turnstile_exitstat::Timing;

use crate::service::Services;
use crate::vm::Vcpu;

/// The general registers of the resident vCPU, and whose they are.
///
/// `vectors.S` knows this layout.
#[repr(C, align(16))]
pub struct Frame {
    /// x0–x10, x30, x11–x29 in this order, so that x30 is stored together with one that all light handlers change; see
    /// [`Frame::slot`].
    slots: [u64; 31],
    /// The vCPU resident on this physical CPU.
    pub vcpu: *const Vcpu,
    /// The vCPU's statistics, and the exit that is being handled. Only the timed vectors look at it.
    pub timing: Timing,
    /// What a light handler leaves to the wide one.
    pub left: Left,
    /// What comes of a data abort that is no light handler's: a code of the light tier, which depends on whether its VM has services.
    pub aborts: u32,
    /// What services are to its VM.
    pub services: Option<&'static Services>,
}

/// What a light handler knows of an exit that it leaves to the wide one.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Left {
    /// The syndrome.
    pub esr: u64,
    /// The value of the transfer register, or whatever the two agree on.
    pub value: u64,
}

const _: () = assert!(core::mem::size_of::<Frame>() == 320);
const _: () = assert!(core::mem::offset_of!(Frame, vcpu) == 248);
const _: () = assert!(core::mem::offset_of!(Frame, timing) == 256);
const _: () = assert!(core::mem::offset_of!(Frame, aborts) == 296);

impl Frame {
    /// Makes an empty frame for `vcpu`. `aborts`: see there.
    pub fn new(vcpu: &'static Vcpu, aborts: u32) -> Self {
        Self {
            slots: [0; 31],
            vcpu,
            timing: Timing::new(vcpu.statistics),
            left: Left::default(),
            aborts,
            services: vcpu.vm.services(),
        }
    }

    /// Returns the slot of x`n`, `n` ≤ 30.
    const fn slot(n: usize) -> usize {
        match n {
            0..=10 => n,
            30 => 11,
            _ => n + 1,
        }
    }

    /// Returns whether wide handlers find register `n` in the frame (31 is the zero register, which they find, too).
    #[inline(always)] // Three instructions.
    pub const fn is_wide(n: usize) -> bool {
        n <= 18 || n >= 30
    }

    /// Reads x`n`, which has been stored; 31 reads as zero.
    #[inline] // A load, where the number is known.
    pub fn get(&self, n: usize) -> u64 {
        if n < 31 { self.slots[Self::slot(n)] } else { 0 }
    }

    /// Writes x`n`, which has been stored; 31 is ignored.
    #[inline] // A store, where the number is known.
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
