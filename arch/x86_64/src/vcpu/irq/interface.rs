// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a local APIC has of this machine: the virtual interrupt of the control block (APM vol. 2, 15.21.4), which is its list
//! register of one; its guest's EOI word; and this CPU's timer while it is resident.

use core::num::NonZeroU64;

use turnstile_exitstat::Event as Statistic;
use turnstile_vapic::{Event, Hardware, NEVER};

use crate::cpu::svm::vmcb::interrupt;
use crate::cpu::svm::{self, Vmcb};
use crate::memory::user;
use crate::time;
use crate::vm::Vcpu;

/// The machine of the vCPU that is resident on this CPU. With `COUNTS`, it keeps statistics if its VM does.
pub struct Interface<'a, const COUNTS: bool> {
    vcpu: &'static Vcpu,
    vmcb: &'a mut Vmcb,
}

impl<'a, const COUNTS: bool> Interface<'a, COUNTS> {
    /// Makes it from the vCPU's control block.
    #[inline(always)] // Nothing.
    pub fn new(vcpu: &'static Vcpu, vmcb: &'a mut Vmcb) -> Self {
        Self { vcpu, vmcb }
    }
}

/// Bits that say what is offered; the others are the task priority and the mode.
const OFFER: u32 = interrupt::PENDING | interrupt::PRIORITY | interrupt::IGNORE_TPR;

/// Converts a time of the guest's counter to this machine's. What has passed is now: the guest's counter may have been set to
/// anything, so only differences mean something.
#[inline]
pub(super) fn to_host(vmcb: &Vmcb, guest: u64) -> u64 {
    let now = time::ticks();
    now.saturating_add(guest.saturating_sub(now.wrapping_add(vmcb.tsc_offset())))
}

impl<const COUNTS: bool> Hardware for Interface<'_, COUNTS> {
    #[inline(always)] // One load.
    fn is_waiting(&self) -> bool {
        self.vmcb.interrupts() & interrupt::PENDING != 0
    }

    #[inline(always)] // A few instructions of each injection.
    fn offer(&mut self, vector: u8, unmasked: bool) {
        let priority = svm::interrupt_priority(vector) << interrupt::PRIORITY_SHIFT;
        let ignore = if unmasked { interrupt::IGNORE_TPR } else { 0 };
        self.vmcb.set_interrupts(self.vmcb.interrupts() & !OFFER | interrupt::PENDING | priority | ignore);
        self.vmcb.set_interrupt_vector(vector.into());
    }

    fn withdraw(&mut self) {
        self.vmcb.set_interrupts(self.vmcb.interrupts() & !OFFER);
    }

    #[inline(always)] // One load.
    fn task_priority(&self) -> u8 {
        (self.vmcb.interrupts() & 0xf) as u8
    }

    #[inline(always)] // A load and a store.
    fn set_task_priority(&mut self, class: u8) {
        self.vmcb.set_interrupts(self.vmcb.interrupts() & !interrupt::TPR | u32::from(class & 0xf));
    }

    #[inline(always)] // One load between STAC and CLAC.
    fn eoi_word(&self, place: NonZeroU64) -> bool {
        // SAFETY: the place was given by `GuestRam::host` in this life of the VM; a new one begins with a reset of the APIC.
        unsafe { user::read_u32(place.get()) & 1 != 0 }
    }

    #[inline(always)] // One store between STAC and CLAC.
    fn set_eoi_word(&mut self, place: NonZeroU64, promised: bool) {
        if COUNTS && promised {
            self.add(Statistic::PvEoiOffered);
        }
        // SAFETY: as for `eoi_word`.
        unsafe { user::write_u32(place.get(), promised.into()) };
    }

    #[inline(always)] // A counter and an addition.
    fn now(&self) -> u64 {
        time::ticks().wrapping_add(self.vmcb.tsc_offset())
    }

    #[inline]
    fn arm(&mut self, deadline: u64) {
        let mut at = if deadline == NEVER { NEVER } else { to_host(self.vmcb, deadline) };
        if self.vcpu.has_8254() {
            at = at.min(self.vcpu.vm.board.timer());
        }
        time::set_guest((at != NEVER).then_some(at));
    }

    #[inline(always)] // Nothing without statistics.
    fn count(&mut self, event: Event) {
        if COUNTS {
            self.add(match event {
                Event::Accepted => Statistic::Accepted,
                Event::Injected => Statistic::Injected,
                // Which of the two ways it came is known to the exit's handler.
                Event::Eoi => return,
                Event::PvEoi => Statistic::PvEoi,
                Event::Ipi => Statistic::Ipi,
                Event::Timer => Statistic::Timer,
                Event::LevelEnded => Statistic::IoApicEoi,
            });
        }
    }
}

impl<const COUNTS: bool> Interface<'_, COUNTS> {
    #[inline]
    fn add(&self, statistic: Statistic) {
        if let Some(page) = self.vcpu.statistics {
            page.count(statistic);
        }
    }
}
