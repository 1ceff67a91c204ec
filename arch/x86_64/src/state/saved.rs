// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a vCPU's state goes on an exit that does without techniques.

use alloc::boxed::Box;

use spin::Mutex;

use crate::cpu::svm::Vmcb;

/// The bytes of XSAVE's area: more than any CPU's.
const EXTENDED: usize = 16384;

/// XSAVE's area (APM vol. 2, 11.5.5).
#[repr(C, align(64))]
pub struct Extended([u8; EXTENDED]);

/// What a vCPU has for this.
pub struct Saved {
    /// The hypervisor's own segments and MSRs, which it would have.
    pub host: Box<Vmcb>,
    /// The extended state of the guest.
    pub extended: Box<Extended>,
    /// What would guard what others post.
    pub lock: Mutex<()>,
}

impl Default for Saved {
    fn default() -> Self {
        // SAFETY: integers, for which zeros are a value. On the heap: it is too large for a stack.
        let extended = unsafe { Box::<Extended>::new_zeroed().assume_init() };
        Self { host: Box::new(Vmcb::new()), extended, lock: Mutex::new(()) }
    }
}
