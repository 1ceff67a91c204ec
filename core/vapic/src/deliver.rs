// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The way of an interrupt through the local APIC: accepted, offered, taken, ended. HOT: every function here is on a light
//! exit, and is a few dozen instructions.

use turnstile_vm::attention::Reasons;

use crate::hardware::{Bus, Event, Hardware};
use crate::mode::Mode;
use crate::registers::{FIRST_VECTOR, SPURIOUS_NO_BROADCAST, error, lvt};
use crate::{Context, Lapic, Mailbox};

/// Marks the offered interrupt as one of the 8259; the low bits are its vector.
pub(crate) const FROM_8259: u16 = 0x100;

/// The class of a vector: what priorities are compared by.
const CLASS: u8 = 0xf0;

impl Lapic {
    /// Learns what the guest did by itself since the last time: took the offered interrupt, ended one by its word. Comes
    /// before everything that uses IRR or ISR; [`Lapic::offer`] comes after.
    #[inline]
    pub(crate) fn sync<H: Hardware, B: Bus>(&mut self, cx: &mut Context<'_, H, B>) {
        self.spread();
        if self.is_plain() {
            self.sync_plain(cx.hardware);
        } else if !cx.hardware.is_waiting() {
            cx.hardware.count(Event::Injected);
            let vector = self.offered as u8;
            self.offered = 0;
            self.line = cx.bus.acknowledge(vector);
            self.refresh_external();
        }
    }

    /// Says whether an interrupt of the 8259 is offered, or was and may have been taken: before the 8259 itself is used,
    /// [`Lapic::settle`] has to tell it.
    #[inline(always)] // One comparison.
    pub fn owes_acknowledge(&self) -> bool {
        !self.is_plain()
    }

    /// Says whether nothing of the 8259 is offered.
    #[inline(always)] // One comparison.
    fn is_plain(&self) -> bool {
        self.offered < FROM_8259
    }

    /// [`Lapic::sync`] when nothing of the 8259 is offered.
    #[inline(always)] // Hot: two tests when nothing is open.
    fn sync_plain<H: Hardware>(&mut self, hardware: &mut H) {
        let vector = self.offered as u8;
        if vector == 0 {
            if self.is_redeemed(hardware) {
                let ended = self.serving.highest();
                self.serving.remove(ended);
                hardware.count(Event::PvEoi);
            }
        } else if hardware.is_waiting() {
            // The guest may have cleared the word without an interrupt in service: that ends nothing.
            self.is_redeemed(hardware);
        } else {
            self.offered = 0;
            self.pending.remove(vector);
            hardware.count(Event::Injected);
            if self.is_redeemed(hardware) {
                hardware.count(Event::PvEoi);
            } else {
                self.serving.insert(vector);
            }
        }
    }

    /// Puts the pending interrupt of the highest priority where the guest takes it, if it is higher than what is in
    /// service, and lays down what its end may be. The task priority is the CPU's to compare.
    #[inline(always)] // Hot: the end of every operation.
    pub(crate) fn offer<H: Hardware>(&mut self, hardware: &mut H) {
        if self.is_frequent() {
            // An interrupt that was accepted meanwhile has led to this.
            return;
        }
        let highest = self.pending.highest();
        let mut next = if highest & CLASS > self.serving.highest() & CLASS { u16::from(highest) } else { 0 };
        if self.external != 0 {
            next = self.external;
        }
        if next != self.offered {
            self.offered = next;
            if next == 0 {
                hardware.withdraw();
            } else {
                hardware.offer(next as u8, next >= FROM_8259);
            }
        }
        self.promise(hardware, next);
        self.gather();
    }

    /// Accepts an interrupt into the IRR (APM vol. 2, 16.6.3). After [`Lapic::sync`], before [`Lapic::offer`].
    #[inline(always)] // Hot: every delivery.
    pub(crate) fn latch<H: Hardware>(&mut self, hardware: &mut H, vector: u8, level: bool) {
        if !self.accepting {
            return;
        }
        if vector < FIRST_VECTOR {
            return self.received_illegal(hardware);
        }
        if level {
            self.level.insert(vector);
        } else if self.level.contains(vector)
            && !self.pending.contains(vector)
            && !self.serving.contains(vector)
        {
            // An edge makes the vector edge-triggered, but not while a level-triggered interrupt of this vector has still to
            // be ended: the I/O APIC waits to hear of that.
            self.level.remove(vector);
        }
        self.pending.insert(vector);
        hardware.count(Event::Accepted);
    }

    #[cold]
    fn received_illegal<H: Hardware>(&mut self, hardware: &mut H) {
        self.fail(hardware, error::RECEIVED_ILLEGAL_VECTOR);
    }

    /// Takes over what others posted, where `reasons` say that something is.
    #[inline(always)] // Hot: two callers.
    pub fn drain<H: Hardware, B: Bus>(
        &mut self,
        cx: &mut Context<'_, H, B>,
        mailbox: &Mailbox,
        reasons: Reasons,
    ) {
        // Mostly it is one interrupt, for a vCPU that has none.
        let Some(at) = reasons.only_mailbox() else { return self.drain_all(cx, mailbox, reasons) };
        let (posted, level) = mailbox.take(at);
        // Not none: what a poster has laid down may have been taken before it gave its reason.
        let is_one = posted.is_power_of_two() && level == 0;
        let vector = (at * 64) as u8 | posted.trailing_zeros() as u8;
        if !is_one || !self.try_accept(cx.hardware, vector) {
            self.accept_all(cx, at, posted, level);
        }
    }

    #[inline(never)] // So that the frequent case is short.
    fn drain_all<H: Hardware, B: Bus>(
        &mut self,
        cx: &mut Context<'_, H, B>,
        mailbox: &Mailbox,
        reasons: Reasons,
    ) {
        self.sync(cx);
        mailbox.drain(reasons, |vector, level| self.latch(cx.hardware, vector, level));
        self.offer(cx.hardware);
    }

    #[inline(never)] // As above.
    fn accept_all<H: Hardware, B: Bus>(
        &mut self,
        cx: &mut Context<'_, H, B>,
        at: usize,
        mut posted: u64,
        level: u64,
    ) {
        self.sync(cx);
        while posted != 0 {
            let bit = posted & posted.wrapping_neg();
            let vector = (at * 64) as u8 | posted.trailing_zeros() as u8;
            self.latch(cx.hardware, vector, level & bit != 0);
            posted ^= bit;
        }
        self.offer(cx.hardware);
    }

    /// Accepts one edge-triggered interrupt: from the vCPU itself, or its timer.
    #[inline(always)] // Hot: a self-IPI.
    pub fn accept<H: Hardware, B: Bus>(&mut self, cx: &mut Context<'_, H, B>, vector: u8) {
        if !self.try_accept(cx.hardware, vector) {
            self.accept_with_care(cx, vector);
        }
    }

    /// As [`Lapic::accept`], with all cases.
    #[inline(never)] // So that the frequent one is short.
    fn accept_with_care<H: Hardware, B: Bus>(&mut self, cx: &mut Context<'_, H, B>, vector: u8) {
        self.sync(cx);
        self.latch(cx.hardware, vector, false);
        self.offer(cx.hardware);
    }

    /// Ends the interrupt in service of the highest priority: a write of the EOI register. Without one it has no effect.
    #[inline(always)] // Hot: half of the interrupts' exits.
    pub fn eoi<H: Hardware, B: Bus>(&mut self, cx: &mut Context<'_, H, B>) {
        if !self.try_eoi(cx.hardware, self.mode == Mode::X2Apic) {
            self.eoi_with_care(cx);
        }
    }

    /// As [`Lapic::eoi`], with all cases.
    #[inline(never)] // So that the frequent one is short.
    fn eoi_with_care<H: Hardware, B: Bus>(&mut self, cx: &mut Context<'_, H, B>) {
        self.sync(cx);
        // Behind one of the 8259's there may be the next of the 8259, of which ends of the APIC's interrupts know nothing.
        cx.hardware.count(Event::Eoi);
        let vector = self.serving.highest();
        self.serving.remove(vector);
        if vector != 0 && self.level.contains(vector) {
            return self.ended_level(cx, vector);
        }
        self.offer(cx.hardware);
    }

    #[cold]
    #[inline(never)]
    fn ended_level<H: Hardware, B: Bus>(&mut self, cx: &mut Context<'_, H, B>, vector: u8) {
        if self.spurious & SPURIOUS_NO_BROADCAST == 0 {
            cx.hardware.count(Event::LevelEnded);
            cx.bus.end_of_interrupt(vector);
        }
        self.offer(cx.hardware);
    }

    /// Looks at everything again, so that what a guest sees next is exact.
    pub fn settle<H: Hardware, B: Bus>(&mut self, cx: &mut Context<'_, H, B>) {
        self.sync(cx);
        self.offer(cx.hardware);
    }

    /// Says whether an interrupt would be taken at once if the guest's interrupt flag were set: what ends a HLT. What the
    /// guest has taken already does not count, so nothing has to be looked at before.
    #[inline]
    pub fn has_deliverable<H: Hardware>(&self, hardware: &H) -> bool {
        let offered = self.offered | u16::from(self.frequent.vector());
        offered != 0
            && hardware.is_waiting()
            && (offered >= FROM_8259 || offered as u8 >> 4 > hardware.task_priority())
    }

    /// Sets what the 8259 asserts: the vector that its INTA cycle would give, or nothing. For the vCPU that its INTR pin is
    /// wired to.
    pub fn set_line<H: Hardware, B: Bus>(&mut self, cx: &mut Context<'_, H, B>, vector: Option<u8>) {
        self.sync(cx);
        let rises = self.line.is_none() && vector.is_some();
        self.line = vector;
        self.refresh_external();
        if rises && self.external == 0 {
            self.local_interrupt(cx, lvt::LINT0);
        }
        self.offer(cx.hardware);
    }

    /// Looks at everything again after LINT0's entry has changed.
    pub(crate) fn settle_line<H: Hardware, B: Bus>(&mut self, cx: &mut Context<'_, H, B>) {
        self.sync(cx);
        self.refresh_external();
        self.offer(cx.hardware);
    }

    /// Derives what of the 8259 gets through: its line is the CPU's own INTR pin while the APIC is disabled, and LINT0
    /// otherwise (APM vol. 2, 16.4.2).
    pub(crate) fn refresh_external(&mut self) {
        let entry = self.lvt[lvt::LINT0];
        let is_open = self.mode == crate::Mode::Disabled || entry & 0x1_0700 == 0x700;
        self.external = match self.line {
            Some(vector) if is_open => FROM_8259 | u16::from(vector),
            _ => 0,
        };
    }
}
