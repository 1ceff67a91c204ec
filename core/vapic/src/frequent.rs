// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The states that an APIC is mostly in, in one word: nothing is pending or in service, or one interrupt is, that came as an edge.
//!
//! While the word is not zero, it is what counts: IRR, ISR, the offer and the promise of a paravirtual EOI are empty, and the word
//! names the one vector. Zero is every other state, and the sets have it. So accepting and ending the one interrupt, which is what
//! nearly all exits about interrupts do, is one comparison and one store. Everything else first lets the sets have what the word
//! says ([`Lapic::spread`], part of [`Lapic::sync`]), and looks in the end whether the word can say it again ([`Lapic::gather`],
//! part of [`Lapic::offer`]).
//!
//! The vector was offered, and is in `V_IRQ` until the guest takes it; then it is in service until it is ended. If the guest has a
//! word for paravirtual EOIs, its end is promised there.

use crate::deliver::FROM_8259;
use crate::hardware::{Event, Hardware};
use crate::mode::Mode;
use crate::registers::FIRST_VECTOR;
use crate::state::Frequent;
use crate::{Lapic, VectorSet};

impl Lapic {
    /// Says whether the word says what the state is.
    #[inline(always)] // One comparison.
    pub(crate) fn is_frequent(&self) -> bool {
        self.frequent.now != 0
    }

    /// Says whether the state is a frequent one of an x2APIC.
    #[inline(always)] // One test.
    pub(crate) fn is_frequent_x2apic(&self) -> bool {
        self.frequent.now & Frequent::X2APIC != 0
    }

    /// Lets the sets have what the word says.
    #[inline(always)] // A test, and a few stores.
    pub(crate) fn spread(&mut self) {
        let vector = self.frequent.vector();
        self.frequent.now = 0;
        if vector != 0 {
            self.pending.insert(vector);
            self.offered = vector.into();
            self.pv_eoi.promised = self.pv_eoi.place;
        }
    }

    /// Lets the word say what the sets have, if it can. After an offer and its promise have been made.
    #[inline(always)] // Two tests mostly.
    pub(crate) fn gather(&mut self) {
        if !self.accepting || !self.serving.is_empty() || self.offered >= FROM_8259 || self.external != 0 {
            return;
        }
        let vector = self.offered as u8;
        let is_alone = if vector == 0 {
            self.pending.is_empty()
        } else {
            self.pending.is_only(vector) && !self.level.contains(vector)
        };
        if !is_alone {
            return;
        }
        let (x2apic, mut end) = match self.mode {
            Mode::X2Apic => (Frequent::X2APIC, Frequent::X2APIC_EOI),
            _ => (0, Frequent::XAPIC_EOI),
        };
        let mut pv = 0;
        if self.pv_eoi.place.is_some() {
            (pv, end) = (Frequent::PV_EOI, 0);
        }
        let idle = Frequent::IS | x2apic | pv;
        self.frequent = Frequent { now: idle, busy: idle | end };
        if vector != 0 {
            self.frequent.set(vector);
        }
        self.pending = VectorSet::EMPTY;
        self.offered = 0;
        self.pv_eoi.promised = None;
    }

    /// Accepts one edge-triggered interrupt if the state is a frequent one, and stays one; false if not, with nothing done.
    #[inline(always)] // Hot: a self-IPI, what others post, the timer.
    pub(crate) fn try_accept<H: Hardware>(&mut self, hardware: &mut H, vector: u8) -> bool {
        self.is_frequent() && self.try_accept_next(hardware, vector)
    }

    /// The same if the state is a frequent one.
    #[inline(always)] // Hot: all of it.
    pub(crate) fn try_accept_next<H: Hardware>(&mut self, hardware: &mut H, vector: u8) -> bool {
        if vector < FIRST_VECTOR || self.level.contains(vector) {
            return false;
        }
        let place = if self.frequent.now & Frequent::PV_EOI != 0 { self.pv_eoi.place } else { None };
        if self.frequent.vector() != 0 {
            // Its end, if it was promised, may have been told by the guest's word: after the guest has taken it, not before.
            let Some(place) = place else { return false };
            if hardware.is_waiting() || hardware.eoi_word(place) {
                return false;
            }
            hardware.count(Event::Injected);
            hardware.count(Event::PvEoi);
        }
        self.frequent.set(vector);
        hardware.count(Event::Accepted);
        hardware.offer(vector, false);
        if let Some(place) = place {
            hardware.set_eoi_word(place, true);
        }
        true
    }

    /// Ends the interrupt in service by the EOI register if it is the only one, and was not promised another end; false if not,
    /// with nothing done.
    #[inline(always)] // Hot: half of the interrupts' exits.
    pub(crate) fn try_eoi<H: Hardware>(&mut self, hardware: &mut H, x2apic: bool) -> bool {
        let (bit, idle) = match x2apic {
            true => (Frequent::X2APIC_EOI, Frequent::IS | Frequent::X2APIC),
            false => (Frequent::XAPIC_EOI, Frequent::IS),
        };
        let is_ended = self.frequent.now & bit != 0 && !hardware.is_waiting();
        if is_ended {
            // Without a word for paravirtual EOIs: its end would be another.
            self.frequent.now = idle;
            hardware.count(Event::Injected);
            hardware.count(Event::Eoi);
        }
        is_ended
    }
}
