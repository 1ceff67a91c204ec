// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The interrupt command register (APM vol. 2, 16.5): interprocessor interrupts, sent.

use crate::hardware::{Bus, Event, Hardware};
use crate::message::{BROADCAST, Delivery, Message};
use crate::mode::Mode;
use crate::registers::{FIRST_VECTOR, error};
use crate::{Context, Lapic};

const LOGICAL: u32 = 1 << 11;
const ASSERT: u32 = 1 << 14;
const LEVEL: u32 = 1 << 15;
const SHORTHAND_ITSELF: u32 = 1 << 18;
/// The bits that an interrupt to one vCPU by its ID has no choice in: delivery 000, physical, no shorthand.
const NOT_PLAIN: u32 = 0x700 | LOGICAL | 3 << 18;

/// Bits 19:18.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shorthand {
    Destination,
    Itself,
    All,
    Others,
}

impl Shorthand {
    fn of(low: u32) -> Self {
        match low >> 18 & 3 {
            0 => Self::Destination,
            1 => Self::Itself,
            2 => Self::All,
            _ => Self::Others,
        }
    }
}

impl Lapic {
    /// Sends what was written to the command register. HOT: an interrupt to one vCPU by its ID, or to itself, is first.
    #[inline]
    pub(crate) fn command<H: Hardware, B: Bus>(&mut self, cx: &mut Context<'_, H, B>, low: u32, to: u32) {
        let vector = low as u8;
        if vector < FIRST_VECTOR {
            self.command_of_any_kind(cx, low, to);
        } else if low & NOT_PLAIN == SHORTHAND_ITSELF {
            cx.hardware.count(Event::Ipi);
            self.accept(cx, vector);
        } else if low & NOT_PLAIN == 0 && to != BROADCAST {
            cx.hardware.count(Event::Ipi);
            if to as usize == self.index {
                self.accept(cx, vector);
            } else if (to as usize) < cx.bus.routes().vcpus() {
                cx.bus.post(to as usize, vector, false);
            }
        } else {
            self.command_of_any_kind(cx, low, to);
        }
    }

    /// Writes the self-IPI register of an x2APIC in a frequent state, or does what the command register asks for; false if it is not
    /// in one, or does not stay in one.
    #[inline(always)] // Hot: a self-IPI.
    pub(crate) fn try_self_ipi<H: Hardware>(&mut self, hardware: &mut H, vector: u8) -> bool {
        let is_accepted = self.is_frequent_x2apic() && self.try_accept_next(hardware, vector);
        if is_accepted {
            hardware.count(Event::Ipi);
        }
        is_accepted
    }

    /// Sends an interrupt to itself by the command register of an x2APIC; false if it is anything else.
    #[inline(always)] // Hot: a self-IPI.
    pub(crate) fn try_command_to_itself<H: Hardware>(&mut self, hardware: &mut H, value: u64) -> bool {
        // Fixed, edge, by the shorthand: or physical, to its ID.
        let (low, to) = (value as u32, value >> 32);
        let is_to_itself = match low & !(0xff | ASSERT) {
            SHORTHAND_ITSELF => true,
            0 => to == self.index as u64,
            _ => false,
        };
        let is_sent = is_to_itself && self.try_self_ipi(hardware, value as u8);
        if is_sent {
            self.command = value;
        }
        is_sent
    }

    /// Sends an interrupt to another vCPU by its ID; false if it is anything else.
    #[inline(always)] // Hot: an interprocessor interrupt.
    pub(crate) fn try_send<H: Hardware, B: Bus>(&mut self, cx: &mut Context<'_, H, B>, value: u64) -> bool {
        let (low, to, vector) = (value as u32, (value >> 32) as usize, value as u8);
        // Fixed, edge, physical.
        let is_plain = low & !(0xff | ASSERT) == 0 && vector >= FIRST_VECTOR;
        if !is_plain || to == self.index || to >= cx.bus.routes().vcpus() {
            return false;
        }
        cx.hardware.count(Event::Ipi);
        self.command = value;
        cx.bus.post(to, vector, false);
        true
    }

    /// Writes the self-IPI register of an x2APIC.
    #[inline]
    pub(crate) fn self_ipi<H: Hardware, B: Bus>(&mut self, cx: &mut Context<'_, H, B>, vector: u8) {
        if vector < FIRST_VECTOR {
            return self.sent_illegal(cx);
        }
        cx.hardware.count(Event::Ipi);
        self.accept(cx, vector);
    }

    #[inline(never)] // So that the frequent ones are leaves.
    fn command_of_any_kind<H: Hardware, B: Bus>(&mut self, cx: &mut Context<'_, H, B>, low: u32, to: u32) {
        let (vector, delivery, shorthand) = (low as u8, Delivery::of(low), Shorthand::of(low));
        let by_vector = matches!(delivery, Delivery::Fixed | Delivery::LowestPriority);
        if by_vector && vector < FIRST_VECTOR {
            return self.sent_illegal(cx);
        }
        // The level of an INIT that is taken back: it synchronized arbitration on early buses, and does nothing.
        let is_deassert = delivery == Delivery::Init && low & LEVEL != 0 && low & ASSERT == 0;
        if is_deassert || matches!(delivery, Delivery::External | Delivery::Reserved) {
            return;
        }
        cx.hardware.count(Event::Ipi);
        if shorthand == Shorthand::Itself && by_vector {
            return self.accept(cx, vector);
        }
        let destination = match shorthand {
            Shorthand::Destination => to,
            Shorthand::Itself => self.index as u32,
            Shorthand::All | Shorthand::Others => BROADCAST,
        };
        // Interprocessor interrupts are edge-triggered whatever bit 15 says.
        let logical = low & LOGICAL != 0 && shorthand == Shorthand::Destination;
        let message = Message { vector, delivery, logical, destination, level: false };
        match shorthand {
            Shorthand::Others => self.to_others(cx, &message),
            _ => cx.bus.deliver(&message),
        }
    }

    /// Sends to all but itself. There is no arbitration here: a lowest-priority message goes to all.
    fn to_others<H: Hardware, B: Bus>(&self, cx: &mut Context<'_, H, B>, message: &Message) {
        let delivery = match message.delivery {
            Delivery::LowestPriority => Delivery::Fixed,
            other => other,
        };
        let routes = cx.bus.routes();
        for vcpu in (0..routes.vcpus()).filter(|vcpu| *vcpu != self.index) {
            cx.bus.deliver(&Message { delivery, logical: false, destination: vcpu as u32, ..*message });
        }
    }

    #[cold]
    #[inline(never)]
    fn sent_illegal<H: Hardware, B: Bus>(&mut self, cx: &mut Context<'_, H, B>) {
        self.sync(cx);
        self.fail(cx.hardware, error::SENT_ILLEGAL_VECTOR);
        self.offer(cx.hardware);
    }

    /// Returns the destination in the upper half of the command register: all, for an xAPIC's 255.
    pub(crate) fn command_destination(&self) -> u32 {
        let high = (self.command >> 32) as u32;
        match (self.mode, high >> 24) {
            (Mode::X2Apic, _) => high,
            (_, 0xff) => BROADCAST,
            (_, id) => id,
        }
    }
}
