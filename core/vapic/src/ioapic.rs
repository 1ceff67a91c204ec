// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The I/O APIC: 24 pins, each with an entry that says which interrupt it is and where it goes (Intel 82093AA, and the EOI
//! register of version 0x20). A VM's one is used under a lock; what it sends is posted while the lock is held, so that an
//! end of interrupt never overtakes the interrupt.

use crate::message::{BROADCAST, Delivery, Message};

/// Pins.
pub const IOAPIC_PINS: usize = 24;

/// Version 0x20, and the number of the last pin.
const VERSION: u32 = 0x20 | (IOAPIC_PINS as u32 - 1) << 16;

const SELECT: u32 = 0x00;
const WINDOW: u32 = 0x10;
const EOI: u32 = 0x40;

const LOGICAL: u64 = 1 << 11;
const STATUS: u64 = 1 << 12;
const REMOTE_IRR: u64 = 1 << 14;
const LEVEL: u64 = 1 << 15;
const MASKED: u64 = 1 << 16;
/// What software may set: not delivery status and remote IRR, and not the reserved bits, but for 55:49, which
/// extend the destination (KVM_FEATURE_MSI_EXT_DEST_ID).
const WRITABLE: u64 = 0xfffe_0000_0001_ffff & !STATUS & !REMOTE_IRR;

/// The I/O APIC of a VM.
#[derive(Clone, Debug)]
pub struct IoApic {
    select: u32,
    id: u32,
    /// The redirection entries.
    entries: [u64; IOAPIC_PINS],
    /// The lines that are asserted. Polarity is the board's matter: a device says whether it wants attention.
    lines: u32,
    /// The pins whose remote IRR is set.
    waiting: u32,
}

impl Default for IoApic {
    fn default() -> Self {
        Self::new()
    }
}

impl IoApic {
    /// Makes one in its reset state, all pins masked.
    pub const fn new() -> Self {
        Self { select: 0, id: 0, entries: [MASKED; IOAPIC_PINS], lines: 0, waiting: 0 }
    }

    /// Resets it; the lines are the devices'.
    pub fn reset(&mut self) {
        *self = Self { lines: self.lines, ..Self::new() };
    }

    /// Reads a register: `offset` in the page. Accesses are 32 bits wide; of a narrower one the low bytes are it.
    #[inline] // The light exit of a read.
    pub fn read(&self, offset: u32) -> u32 {
        match offset {
            SELECT => self.select,
            WINDOW => self.read_indirect(),
            _ => 0,
        }
    }

    fn read_indirect(&self) -> u32 {
        match self.select {
            0 => self.id,
            1 => VERSION,
            // The arbitration ID follows the ID.
            2 => self.id,
            at @ 0x10..0x40 => {
                let pin = (at as usize - 0x10) / 2;
                let remote = if self.waiting >> pin & 1 != 0 { REMOTE_IRR } else { 0 };
                ((self.entries[pin] | remote) >> (at % 2 * 32)) as u32
            }
            _ => 0,
        }
    }

    /// Writes a register, and hands what follows from it to `send`.
    pub fn write(&mut self, offset: u32, value: u32, mut send: impl FnMut(&Message)) {
        match offset {
            SELECT => self.select = value & 0xff,
            WINDOW => match self.select {
                0 => self.id = value & 0x0f00_0000,
                at @ 0x10..0x40 => self.write_entry(at - 0x10, value, &mut send),
                _ => {}
            },
            EOI => self.end_of_interrupt(value as u8, send),
            _ => {}
        }
    }

    fn write_entry(&mut self, at: u32, value: u32, send: &mut impl FnMut(&Message)) {
        let (pin, shift) = (at as usize / 2, at % 2 * 32);
        let entry = &mut self.entries[pin];
        *entry = (*entry & !(0xffff_ffff << shift) | u64::from(value) << shift) & WRITABLE;
        if *entry & LEVEL == 0 {
            // Software that cannot write the EOI register turns a pin to edge and back to be rid of its remote IRR.
            self.waiting &= !(1 << pin);
        }
        self.serve_level(pin, send);
    }

    /// Sets the line of a pin, and hands the message that follows from it to `send`.
    pub fn set_line(&mut self, pin: usize, asserted: bool, mut send: impl FnMut(&Message)) {
        if pin >= IOAPIC_PINS {
            return;
        }
        let was = self.lines >> pin & 1 != 0;
        self.lines = self.lines & !(1 << pin) | u32::from(asserted) << pin;
        let entry = self.entries[pin];
        if entry & LEVEL != 0 {
            self.serve_level(pin, &mut send);
        } else if asserted && !was && entry & MASKED == 0 {
            // An edge that meets the mask is gone.
            send(&message(entry));
        }
    }

    /// A vCPU has ended a level-triggered interrupt with this vector, or wrote it to the EOI register.
    pub fn end_of_interrupt(&mut self, vector: u8, mut send: impl FnMut(&Message)) {
        let mut waiting = self.waiting;
        while waiting != 0 {
            let pin = waiting.trailing_zeros() as usize;
            waiting &= waiting - 1;
            if self.entries.get(pin).is_some_and(|&entry| entry as u8 == vector) {
                self.waiting &= !(1 << pin);
                self.serve_level(pin, &mut send);
            }
        }
    }

    /// Says whether a pin's interrupts are edges with this vector.
    pub fn is_edge(&self, pin: usize, vector: u8) -> bool {
        self.entries.get(pin).is_some_and(|entry| entry & (LEVEL | MASKED) == 0 && *entry as u8 == vector)
    }

    /// Sends the message of a level-triggered pin that is asserted, unless its last one is still in service.
    fn serve_level(&mut self, pin: usize, send: &mut impl FnMut(&Message)) {
        let Some(&entry) = self.entries.get(pin) else { return };
        if entry & (LEVEL | MASKED) != LEVEL || self.lines >> pin & 1 == 0 || self.waiting >> pin & 1 != 0 {
            return;
        }
        let message = message(entry);
        // Only interrupts by vector are ended: of others nothing would ever clear it.
        if matches!(message.delivery, Delivery::Fixed | Delivery::LowestPriority) {
            self.waiting |= 1 << pin;
        }
        send(&message);
    }
}

/// Decodes a redirection entry.
fn message(entry: u64) -> Message {
    let (id, extension) = ((entry >> 56) as u32, (entry >> 49 & 0x7f) as u32);
    let delivery = match Delivery::of(entry as u32) {
        // Devices start no vCPUs.
        Delivery::Startup => Delivery::Reserved,
        delivery => delivery,
    };
    Message {
        vector: entry as u8,
        delivery,
        logical: entry & LOGICAL != 0,
        destination: if id == 0xff && extension == 0 { BROADCAST } else { extension << 8 | id },
        level: entry & LEVEL != 0,
    }
}
