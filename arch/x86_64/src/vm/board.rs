// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the I/O APIC of a VM does, and the way between its vCPUs.

use turnstile_vapic::{Bus, Message, Routes, Signal};
use turnstile_vm::attention::Reasons;

use super::objects::Vm;
use crate::irq::board::TIMER_PIN;

impl Vm {
    /// Reads a register of the I/O APIC.
    #[inline] // On the light exit of a read.
    pub fn ioapic_read(&self, offset: u32) -> u32 {
        self.board.ioapic.lock().read(offset)
    }

    /// Writes a register of the I/O APIC.
    pub fn ioapic_write(&self, offset: u32, value: u32) {
        self.board.ioapic.lock().write(offset, value, |message| self.deliver(message));
    }

    /// Sets the level of an interrupt line of the board, by its global number: the I/O APIC's pin.
    pub fn set_line(&self, pin: usize, asserted: bool) {
        self.board.ioapic.lock().set_line(pin, asserted, |message| self.deliver(message));
    }

    /// Delivers what a device writes to an address to interrupt; false if nothing is there, or nothing is interrupted that way.
    pub fn message(&self, address: u64, data: u64) -> bool {
        let message = u32::try_from(data).ok().and_then(|data| Message::of_device(address, data));
        message.inspect(|message| self.deliver(message)).is_some()
    }

    /// Asserts a line. If `watched`, the end of its interrupt is told even if that is edge-triggered, which costs the guest an
    /// exit.
    pub(crate) fn assert_line(&self, pin: usize, watched: bool) {
        self.board.ioapic.lock().set_line(pin, true, |message| {
            self.deliver(&Message { level: message.level || watched, ..*message })
        });
    }
}

impl Bus for Vm {
    #[inline(always)] // An address.
    fn routes(&self) -> &Routes {
        &self.board.routes
    }

    #[inline] // On the path of every interprocessor interrupt.
    fn post(&self, vcpu: usize, vector: u8, level: bool) {
        if let Some(target) = self.vcpu(vcpu) {
            target.notify(target.mailbox.post(&target.attention, vector, level));
        }
    }

    fn signal(&self, vcpu: usize, signal: Signal) {
        let Some(target) = self.vcpu(vcpu) else { return };
        match signal {
            Signal::Nmi => target.post(Reasons::NMI),
            Signal::Init => {
                if self.startup.init(vcpu) {
                    target.post(Reasons::INIT);
                }
            }
            Signal::Startup(page) => {
                if self.startup.startup(vcpu, page) {
                    target.post(Reasons::START);
                }
            }
        }
    }

    fn end_of_interrupt(&self, vector: u8) {
        let mut ioapic = self.board.ioapic.lock();
        ioapic.end_of_interrupt(vector, |message: &Message| self.deliver(message));
        let is_timer = ioapic.is_edge(TIMER_PIN, vector);
        drop(ioapic);
        if is_timer {
            self.make_up();
        }
    }

    fn acknowledge(&self, vector: u8) -> Option<u8> {
        self.acknowledge_8259(vector)
    }
}
