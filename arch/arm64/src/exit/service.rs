// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Services: accesses of the devices that they serve, and what the CPU does while one is inside.
//!
//! The light tier hands over data aborts that it does not know ([`Code::SERVICE`]), if the VM has services. All registers that
//! compiled code may change are in the frame then; those that it preserves are in the CPU, and the way into the service stores them.

use turnstile_arch_common::service::Meanwhile;
use turnstile_exitstat::Reason;
use turnstile_service::abi::{Event, Kind};
use turnstile_vm::attention::Reasons;

use super::decode::{Decoded, FAULT, FAULT_TRANSLATION, ISV, S1PTW, fault_address};
use super::irq;
use super::light::{Code, done, resident, skip};
use crate::cpu::{self, regs};
use crate::irq::{Gic, Gicv2, Gicv3, Gicv3Legacy};
use crate::service::{Served, Service};
use crate::time;
use crate::vcpu::frame::Frame;
use crate::vm::{Owned, Vcpu, monitor, serve_remote};

/// What a vCPU's CPU does while it is kept from its guest by a service.
struct Inside<'a, G> {
    vcpu: &'static Vcpu,
    owned: &'a mut Owned,
    gic: core::marker::PhantomData<G>,
}

impl<'a, G: Gic> Inside<'a, G> {
    #[inline(always)] // Nothing.
    fn new(vcpu: &'static Vcpu, owned: &'a mut Owned) -> Self {
        Self { vcpu, owned, gic: core::marker::PhantomData }
    }

    /// Does what other vCPUs wait for.
    fn serve(&mut self) {
        serve_remote::<G>(self.vcpu, &mut self.owned.gic, &mut G::interface());
    }
}

impl<G: Gic> Meanwhile for Inside<'_, G> {
    #[cold]
    #[inline(never)]
    fn interrupt(&mut self) {
        let acknowledged = G::acknowledge();
        // Behind a kick is memory to read, which is not ordered behind the acknowledge. What it announces waits in the attention
        // word until the guest is entered; but for this, others may be waiting.
        cpu::isb();
        irq::full::<G>(self.vcpu, self.owned, monitor(), acknowledged);
        self.serve();
    }

    #[cold]
    #[inline(never)]
    fn wait(&mut self) {
        // Commands and deadlines of this CPU do not wait for who is inside.
        self.interrupt();
        cpu::relax();
    }

    fn again(&mut self) {
        self.vcpu.attention.raise(Reasons::SERVICE);
    }

    fn message(&mut self, vm: u8, address: u64, data: u64) -> bool {
        let own = self.vcpu.vm;
        let intid = if vm == own.id { own.message_intid(address, data) } else { None };
        intid.is_some_and(|intid| own.with_gic::<G, _>(|cx| self.owned.gic.present_edge(cx, intid)))
    }
}

/// A device, and the offset in it.
type Place = (&'static Served, u64);

/// Hands an access to a device's service: what is `written`, or a read. Returns what is read.
#[inline(always)] // Of each access.
fn access<G: Gic>(
    vcpu: &'static Vcpu,
    owned: &mut Owned,
    (device, offset): Place,
    size: u8,
    written: Option<u64>,
) -> u64 {
    let (kind, value) = written.map_or((Kind::Read, 0), |value| (Kind::Write, value));
    let event = Event::new(kind, [device.device, offset, size.into(), value, 0]);
    // SAFETY: an exit handler, on the CPU where the vCPU is resident, which enters no other service meanwhile.
    let value = unsafe { device.service.value(&event, &mut Inside::<G>::new(vcpu, owned)) };
    skip();
    value
}

/// Hands a write to a device's service.
#[inline(never)] // Who rings while somebody is inside needs no stack.
fn write<G: Gic>(vcpu: &'static Vcpu, place: Place, size: u8, value: u64) -> u32 {
    // SAFETY: an exit handler of the CPU where the vCPU is resident; taken once in this exit.
    let owned = unsafe { vcpu.owned() };
    access::<G>(vcpu, owned, place, size, Some(value));
    done(vcpu)
}

/// Handles what has rung while nobody was inside.
#[inline(never)] // As above.
fn rung<G: Gic>(vcpu: &'static Vcpu, service: &'static Service) -> u32 {
    // SAFETY: as for writes, and inside.
    unsafe { service.rung(&mut Inside::<G>::new(vcpu, vcpu.owned())) };
    skip();
    done(vcpu)
}

/// A load that is not the light handler's, of a VM that has services: one that extends no sign, whose syndrome is valid, missing in
/// stage 2 at `address`. All that is none of theirs, and what registers it needs that are not in the frame, is left to the full
/// tier.
#[inline(always)] // The handlers.
pub(super) fn load<G: Gic, const TIMED: bool>(frame: &mut Frame, address: u64) -> u32 {
    let vcpu = resident(frame);
    let Some(services) = frame.services else { return Code::SYNC };
    let decoded = Decoded::new(regs::ESR_EL2.read() as u32);
    if !Frame::is_wide(decoded.register) {
        return Code::SYNC;
    }
    let Some(place) = services.at_address(address) else { return Code::SYNC };
    // SAFETY: an exit handler of the CPU where the vCPU is resident; taken once in this exit.
    let owned = unsafe { vcpu.owned() };
    let read = access::<G>(vcpu, owned, place, decoded.size, None);
    frame.set(decoded.register, decoded.extend_for_device(read));
    account::<TIMED>(frame, place, Reason::Service);
    done(vcpu)
}

/// The same for any data abort that is not the light handler's and stores. A doorbell waits for nobody.
#[inline(always)] // The handlers.
pub(super) fn store<G: Gic, const TIMED: bool>(frame: &mut Frame) -> u32 {
    let vcpu = resident(frame);
    let Some(services) = frame.services else { return Code::SYNC };
    let iss = regs::ESR_EL2.read() as u32;
    let decoded = Decoded::new(iss);
    if !is_described(iss) || !Frame::is_wide(decoded.register) {
        return Code::SYNC;
    }
    let Some(place) = services.at_address(fault_address()) else { return Code::SYNC };
    let value = decoded.extend_for_device(frame.get(decoded.register));
    let Some(queue) = place.0.queue(place.1, value) else {
        let code = write::<G>(vcpu, place, decoded.size, value);
        account::<TIMED>(frame, place, Reason::Service);
        return code;
    };
    if place.0.service.rings(queue) {
        let code = rung::<G>(vcpu, place.0.service);
        account::<TIMED>(frame, place, Reason::Doorbell);
        return code;
    }
    skip();
    account::<TIMED>(frame, place, Reason::Doorbell);
    done(vcpu)
}

/// The exit that is being handled was for a service.
#[inline(always)] // Nothing where no statistics are kept.
fn account<const TIMED: bool>(frame: &mut Frame, (device, _): Place, reason: Reason) {
    if TIMED {
        device.service.account(&mut frame.timing, reason, time::ticks);
    }
}

/// Says whether a syndrome describes an access that is missing in stage 2.
#[inline(always)] // A few instructions.
fn is_described(iss: u32) -> bool {
    iss & (ISV | S1PTW | FAULT) == ISV | FAULT_TRANSLATION
}

/// An access of a service's device in the full tier; false if it is none.
#[cold]
#[inline(never)]
pub(super) fn data_abort<G: Gic>(
    frame: &mut Frame,
    vcpu: &'static Vcpu,
    owned: &mut Owned,
    iss: u32,
) -> bool {
    let decoded = Decoded::new(iss);
    let Some(services) = frame.services.filter(|_| is_described(iss)) else { return false };
    let Some((device, offset)) = services.at_address(fault_address()) else { return false };
    let written = decoded.write.then(|| decoded.extend_for_device(frame.get(decoded.register)));
    if let Some(queue) = written.and_then(|value| device.queue(offset, value)) {
        // SAFETY: as for accesses.
        unsafe { device.service.ring(queue, &mut Inside::<G>::new(vcpu, owned)) };
        skip();
        account::<true>(frame, (device, offset), Reason::Doorbell);
        return true;
    }
    let read = access::<G>(vcpu, owned, (device, offset), decoded.size, written);
    if !decoded.write {
        frame.set(decoded.register, decoded.extend(read));
    }
    account::<true>(frame, (device, offset), Reason::Service);
    true
}

/// Lets the services of the vCPU's VM handle what came for them from elsewhere. Before that it is said that the VM waits for memory, if it does.
#[cold]
#[inline(never)]
pub(super) fn look<G: Gic>(frame: &mut Frame, vcpu: &'static Vcpu, owned: &mut Owned) {
    if let Some(number) = vcpu.vm.taken.take_news() {
        monitor().short_of_memory(vcpu.vm, number);
    }
    let Some(services) = vcpu.vm.services() else { return };
    let mut meanwhile = Inside::<G>::new(vcpu, owned);
    for service in &services.all {
        // SAFETY: an exit handler, on the CPU where the vCPU is resident, not inside of a service.
        if unsafe { service.look(&mut meanwhile) } {
            service.account(&mut frame.timing, Reason::Service, time::ticks);
        }
    }
}

/// Defines the handlers that `vectors.S` knows, apart from those of exits that every VM has.
macro_rules! handlers {
    ($($(#[$doc:meta])* $load:ident, $store:ident: $gic:ident, $timed:literal;)*) => {$(
        $(#[$doc])*
        #[cfg_attr(target_os = "none", unsafe(no_mangle), unsafe(link_section = ".text.service"))]
        pub extern "C" fn $load(frame: &mut Frame, address: u64) -> u32 {
            load::<$gic, $timed>(frame, address)
        }

        $(#[$doc])*
        #[cfg_attr(target_os = "none", unsafe(no_mangle), unsafe(link_section = ".text.service"))]
        pub extern "C" fn $store(frame: &mut Frame) -> u32 {
            store::<$gic, $timed>(frame)
        }
    )*};
}

handlers! {
    /// Data aborts of VMs that have services.
    turnstile_service_load, turnstile_service_store: Gicv3, false;
    /// The same on a GICv2.
    turnstile_service_load_gicv2, turnstile_service_store_gicv2: Gicv2, false;
    /// The same for GICv2 guests on a GICv3.
    turnstile_service_load_legacy, turnstile_service_store_legacy: Gicv3Legacy, false;
    /// Data aborts of VMs that have services, where statistics are kept.
    turnstile_service_load_timed, turnstile_service_store_timed: Gicv3, true;
    /// The same on a GICv2.
    turnstile_service_load_gicv2_timed, turnstile_service_store_gicv2_timed: Gicv2, true;
    /// The same for GICv2 guests on a GICv3.
    turnstile_service_load_legacy_timed, turnstile_service_store_legacy_timed: Gicv3Legacy, true;
}

#[cfg(test)]
mod tests;
