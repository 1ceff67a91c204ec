// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The operating system's ring of a vCPU: what of it moves when the vCPU becomes resident, and leaves.

use super::tima::{self, NOTIFIED, OWN, OsAcknowledge, OsCam, OsPull, OsState, OsWords, RESET, VALID};
use crate::cpu;

/// A vCPU's ring while the vCPU is not resident.
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    /// Where it is while the vCPU is resident: the hypervisor's page. Beside the vCPU, so that light exits need nothing else.
    page: u64,
    /// Both words; kept by the controller itself where [`Ring::keeps`].
    words: u64,
    /// What names the vCPU's virtual processor.
    cam: u32,
    /// Whether the controller keeps the words of virtual processors that are not resident.
    keeps: bool,
}

impl Ring {
    /// Makes the ring of a virtual processor that has never been resident.
    pub fn new(cam: u32, keeps: bool) -> Self {
        Self { page: tima::page(), words: RESET, cam: cam | VALID, keeps }
    }

    /// Returns the page that it is in while the vCPU is resident.
    #[inline(always)] // One load.
    pub(super) fn page(&self) -> u64 {
        self.page
    }

    /// The vCPU becomes resident on this CPU. What came for it meanwhile is pending.
    pub(super) fn load(&self) {
        // SAFETY: the vCPU that becomes resident is the one whose ring this is. The words come first: the controller adds to
        // them what it has kept, and interrupts.
        unsafe {
            if !self.keeps {
                OsWords.store(self.page, self.words);
            }
            cpu::eieio();
            OsCam.store(self.page, self.cam);
        }
    }

    /// The vCPU leaves this CPU. True if something is pending for it that is not masked.
    pub(super) fn put(&mut self) -> bool {
        OsPull.load(self.page);
        // The controller does not write the words any more.
        cpu::eieio();
        let words = OsWords.load(self.page);
        self.words = words & OWN | RESET & !OWN;
        let (priority, pending) = ((words >> 48) as u8, (words >> 40) as u8);
        // The best pending priority has the highest bit.
        pending.leading_zeros() < u32::from(priority.min(8))
    }

    /// Resets the ring of the resident vCPU: nothing is pending, and everything is masked.
    pub(super) fn reset(&self) {
        // Accepting what is pending is what takes it back from the CPU.
        OsAcknowledge.load(self.page);
        // SAFETY: the ring stays that of the resident vCPU.
        unsafe { OsWords.store(self.page, RESET) };
        cpu::eieio();
    }

    /// Says whether an external interrupt is pending for the vCPU, which is resident.
    #[inline(always)] // Two instructions beside the load.
    pub(super) fn is_pending(&self) -> bool {
        OsState.load(self.page) & NOTIFIED != 0
    }
}
