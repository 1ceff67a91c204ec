// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Devices that a service serves: how an exit hands an access to it, and what the CPU does while the service keeps it from its guest.

use turnstile_arch_common::service::Meanwhile;
use turnstile_exitstat::Reason;
use turnstile_service::abi::{Event, Kind};
use turnstile_service::image::BY_VALUE;
use turnstile_vm::attention::Reasons;
use turnstile_x86insn::operation::{Kind as Operand, Operation, Source};

use crate::cpu;
use crate::cpu::svm::Vmcb;
use crate::irq::interrupts::{self, Arrived};
use crate::service::{Served, Service};
use crate::time;
use crate::vcpu::frame::Frame;
use crate::vcpu::frame::number::RAX;
use crate::vcpu::serve::serve;
use crate::vm::Vcpu;
use crate::vm::bell::{Bell, From, Number};
use crate::vm::monitor::monitor;

/// A device that a service serves, and the offset in it.
#[derive(Clone, Copy)]
pub(super) struct Found {
    device: &'static Served,
    offset: u64,
}

/// Finds the device at a port.
#[inline(always)] // Of each access.
pub(super) fn at_port(vcpu: &'static Vcpu, port: u16) -> Option<Found> {
    let (device, offset) = vcpu.vm.services()?.at_port(port)?;
    Some(Found { device, offset })
}

/// Finds the device in memory at a guest physical address.
#[inline(always)] // Of each access.
pub(super) fn at_address(vcpu: &'static Vcpu, address: u64) -> Option<Found> {
    let (device, offset) = vcpu.vm.services()?.at_address(address)?;
    Some(Found { device, offset })
}

/// Finds an offset in the configuration space of the PCI function in a slot.
pub(super) fn function(vcpu: &'static Vcpu, slot: u64, offset: u64) -> Option<Found> {
    let device = vcpu.vm.services()?.function(slot)?;
    Some(Found { device, offset })
}

impl Found {
    /// Returns the event of an access of `size` bytes; `value` is what is written, if it is no read.
    #[inline(always)] // A few moves.
    pub fn event(self, is_read: bool, size: u8, value: u64) -> Event {
        let kind = if is_read { Kind::Read } else { Kind::Write };
        let written = value & u64::MAX >> (64 - 8 * u32::from(size).clamp(1, 8));
        let value = if is_read { 0 } else { written };
        Event::new(kind, [self.device.device, self.offset, size.into(), value, 0])
    }

    /// Returns the queue of a doorbell that is rung by a write of `value`.
    #[inline(always)] // A comparison of each write of a device.
    pub fn doorbell(self, value: u64) -> Option<u64> {
        self.device.queue(self.offset, value)
    }

    /// Says whether a write there rings.
    #[inline(always)] // A comparison.
    pub fn has_doorbell(self) -> bool {
        self.doorbell(0).is_some()
    }

    /// The exit that is being handled was for it. Nothing happens where no statistics are kept.
    #[cold]
    #[inline(never)] // Exits without statistics are not to pay for it.
    pub fn account(self, frame: &mut Frame, is_write: bool) {
        // Whatever the value: it is the place that rings.
        let rings = is_write && self.doorbell(0).is_some();
        let reason = if rings { Reason::Doorbell } else { Reason::Service };
        self.device.service.account(&mut frame.timing, reason, time::ticks);
    }

    /// Rings a doorbell.
    #[inline(never)] // As below.
    pub fn ring(self, vcpu: &'static Vcpu, queue: u64) {
        // SAFETY: as in `access`.
        unsafe { self.device.service.ring(queue, &mut Kept { vcpu }) };
    }

    /// Remembers the instruction that is about to ring, of which these are the first bytes.
    #[cold] // Rung again, it has been remembered.
    #[inline(never)] // As above.
    pub fn remember(self, vcpu: &'static Vcpu, vmcb: &Vmcb, operation: &Operation, code: u128) {
        let Some(number) = self.number(operation) else { return };
        let length = operation.length;
        let device = (self.device, self.offset);
        let bell =
            vcpu.owned(|owned| Bell::new(vmcb, device, number, [operation.size, length], code, &owned.walks));
        if let Some(bell) = bell {
            let last = bell.last();
            vcpu.set_bell(bell);
            if !self.is_all_at(vcpu, vmcb.exit_info()[1], last) {
                vcpu.forget_bell();
            }
        }
    }

    /// Says whether the device is still where it was found, and has this address of its doorbells, too. A BAR may have moved
    /// meanwhile, or be smaller.
    fn is_all_at(self, vcpu: &'static Vcpu, found: u64, address: u64) -> bool {
        let place = address.wrapping_sub(found).wrapping_add(self.offset);
        at_address(vcpu, address)
            .is_some_and(|last| core::ptr::eq(last.device, self.device) && last.offset == place)
    }

    /// Returns where a store has the queue's number from, if that is something that is remembered: of a register, nothing can be added
    /// to it.
    fn number(self, operation: &Operation) -> Option<Number> {
        let written = u64::MAX >> (64 - 8 * u32::from(operation.size).clamp(1, 8));
        let bell = self.device.bell;
        match operation.kind {
            Operand::Store(Source::Register(gpr)) if gpr.high => None,
            Operand::Store(_) if self.device.doorbells.by != BY_VALUE => Some(Number::place(bell)),
            Operand::Store(Source::Immediate(value)) => {
                (value & written).checked_add(bell).map(Number::always)
            }
            Operand::Store(Source::Register(_)) if bell != 0 => None,
            Operand::Store(Source::Register(gpr)) => {
                let from = match gpr.number.into() {
                    RAX => From::Rax,
                    number => From::Pushed(Frame::slot(number)?),
                };
                Some(Number { from, mask: written, constant: 0 })
            }
            _ => None,
        }
    }

    /// Writes a value of `size` bytes: rings, or hands the device the event of it.
    #[inline(never)] // As above.
    pub fn write_fully(self, vcpu: &'static Vcpu, size: u8, value: u64) {
        let event = self.event(false, size, value);
        match self.doorbell(event.0[4]) {
            Some(queue) => self.ring(vcpu, queue),
            None => _ = self.access_fully(vcpu, &event),
        }
    }

    /// Hands the device an event, and returns the value of its answer.
    #[inline(always)] // Of each access.
    pub fn access(self, vcpu: &'static Vcpu, event: &Event) -> u64 {
        // SAFETY: an exit handler, on the CPU where the vCPU is resident. Nothing that a service does gets here: its calls end in
        // the hypervisor, and interrupts that come meanwhile are served without entering another vCPU or service.
        unsafe { self.device.service.access(event, &mut Kept { vcpu }) }.value
    }

    /// The same as [`Found::access`], for who has other things to do, too.
    #[inline(never)] // What it needs of the stack and the registers, and of the image, others are not to pay for.
    pub fn access_fully(self, vcpu: &'static Vcpu, event: &Event) -> u64 {
        self.access(vcpu, event)
    }
}

/// Handles what waits for a service that nobody was in.
#[inline(always)] // Its caller is this.
pub(super) fn rung(vcpu: &'static Vcpu, service: &'static Service) {
    // SAFETY: as in `access`; inside.
    unsafe { service.rung(&mut Kept { vcpu }) };
}

/// The exit that is being handled was for a doorbell of a service.
#[cold]
#[inline(never)] // Exits without statistics are not to pay for it.
pub(super) fn account_doorbell(frame: &mut Frame, service: &Service) {
    service.account(&mut frame.timing, Reason::Doorbell, time::ticks);
}

/// Lets the services of the vCPU's VM handle what others want of them. Before that it is said that the VM waits for memory, if it does.
#[cold]
pub(super) fn look(frame: &mut Frame, vcpu: &'static Vcpu) {
    if let Some(number) = vcpu.vm.taken.take_news() {
        monitor().short_of_memory(vcpu.vm, number);
    }
    let services = vcpu.vm.services().map_or(&[][..], |services| &services.all);
    for service in services {
        // SAFETY: as in `access`.
        if unsafe { service.look(&mut Kept { vcpu }) } {
            service.account(&mut frame.timing, Reason::Service, time::ticks);
        }
    }
}

/// The CPU of a vCPU that a service keeps from its guest.
struct Kept {
    vcpu: &'static Vcpu,
}

impl Meanwhile for Kept {
    /// What interrupts the guest, too: kicks wait in the vCPU's attention word until it goes back to it.
    #[cold]
    fn interrupt(&mut self) {
        serve(Some(self.vcpu), monitor(), interrupts::take());
    }

    #[cold]
    fn wait(&mut self) {
        let arrived = interrupts::take();
        if arrived != Arrived::NOTHING {
            serve(Some(self.vcpu), monitor(), arrived);
        }
        cpu::relax();
    }

    fn again(&mut self) {
        self.vcpu.attention.raise(Reasons::SERVICE);
    }
}

#[cfg(test)]
mod tests;
