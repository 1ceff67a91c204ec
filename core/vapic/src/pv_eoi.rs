// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The paravirtual EOI: a word in the guest's memory whose bit 0 says that the interrupt in service needs no write of the
//! EOI register (KVM's MSR 0x4b564d04). The guest tests and clears the bit by one instruction; if it was set, that was its
//! end of interrupt, and an exit is saved.
//!
//! # The rule
//!
//! The bit is set, *promised*, while exactly one interrupt is in service or offered, nothing else is pending that its end
//! would release, and it is not level-triggered, since then the I/O APIC has to hear of its end. Any change of that takes the bit
//! back. So at any time at most one interrupt can have been ended this way without being known, and it is known which.
//!
//! # The states
//!
//! The interrupt goes through `V_IRQ` and the bit through the guest's memory; both are looked at in [`Lapic::sync`] before
//! anything else is:
//!
//! | `V_IRQ` | bit | what happened |
//! |---|---|---|
//! | set | set | nothing |
//! | set | clear | the guest ended what it does not have: no interrupt ends, and the bit is set again |
//! | clear | set | taken, in service |
//! | clear | clear | taken and ended |
//!
//! A nested interrupt finds no promise, because the model saw it coming and took the bit back: its end, and that of
//! the interrupt below it, are writes of the register, or get a promise of their own when each is alone again.

use core::num::NonZeroU64;

use crate::hardware::{Bus, Hardware};
use crate::promise::PvEoi;
use crate::{Context, Fault, Lapic};

/// Bit 0 of the MSR: on.
const ENABLED: u64 = 1 << 0;
/// Reserved: the address is a multiple of four.
const RESERVED: u64 = 1 << 1;

impl Lapic {
    /// Reads MSR 0x4b564d04.
    pub fn pv_eoi(&self) -> u64 {
        self.pv_eoi.value
    }

    /// Writes MSR 0x4b564d04. `resolve` turns the word's guest physical address into what [`Hardware::eoi_word`] gets; it
    /// returns `None` for an address where the guest has no memory, which is a fault, as are reserved bits.
    pub fn set_pv_eoi<H: Hardware, B: Bus>(
        &mut self,
        cx: &mut Context<'_, H, B>,
        value: u64,
        resolve: impl FnOnce(u64) -> Option<NonZeroU64>,
    ) -> Result<(), Fault> {
        if value & RESERVED != 0 {
            return Err(Fault);
        }
        let place = match value & ENABLED {
            0 => None,
            _ => Some(resolve(value & !(ENABLED | RESERVED)).ok_or(Fault)?),
        };
        self.sync(cx);
        self.take_back(cx.hardware);
        self.pv_eoi = PvEoi { place, promised: None, value };
        self.offer(cx.hardware);
        Ok(())
    }

    /// Clears the bit, if it is promised. Only when it is known whether the guest has cleared it already.
    fn take_back<H: Hardware>(&mut self, hardware: &mut H) {
        if let Some(place) = self.pv_eoi.promised.take() {
            hardware.set_eoi_word(place, false);
        }
    }

    /// Looks whether the guest has kept to the promise: true if it has cleared the bit, and there is none any more.
    #[inline(always)] // Hot: part of `sync`.
    pub(crate) fn is_redeemed<H: Hardware>(&mut self, hardware: &H) -> bool {
        let Some(place) = self.pv_eoi.promised else { return false };
        if hardware.eoi_word(place) {
            return false;
        }
        self.pv_eoi.promised = None;
        true
    }

    /// Sets or takes back the bit by the rule. `next` is what was offered, or zero.
    #[inline(always)] // Hot: part of `offer`.
    pub(crate) fn promise<H: Hardware>(&mut self, hardware: &mut H, next: u16) {
        let Some(place) = self.pv_eoi.place else { return };
        let serving = self.serving.highest();
        let alone = match (next, serving) {
            // Of the 8259's interrupts the APIC knows nothing, so their ends are none of its own.
            (1..256, 0) => next as u8,
            (0, _) if self.pending.is_empty() => serving,
            _ => 0,
        };
        let promised = alone != 0 && self.is_alone(alone, serving) && !self.level.contains(alone);
        if promised != self.pv_eoi.is_promised() {
            hardware.set_eoi_word(place, promised);
            self.pv_eoi.promised = promised.then_some(place);
        }
    }

    #[inline(always)] // Hot: part of `promise`.
    fn is_alone(&self, vector: u8, serving: u8) -> bool {
        if serving == 0 { self.pending.is_only(vector) } else { self.serving.is_only(vector) }
    }
}
