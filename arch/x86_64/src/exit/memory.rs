// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Nested page faults (APM vol. 2, 15.25.6): memory that is mapped on demand, devices in memory, and addresses without anything
//! behind them.
//!
//! EXITINFO2 is where the access went; what it was is found by decoding the instruction. The address is that of the
//! instruction's own operand if the fault is in the last step of the translation, it is no fetch, and no event was being
//! delivered: all else has no operand.

use turnstile_arch_common::demand::Touch;
use turnstile_exitstat::{Event, Reason};
use turnstile_service::gate::Pending;
use turnstile_vm::attention::Reasons;
use turnstile_vm::lifecycle::Stop;
use turnstile_x86insn::execute::{self, Machine, Progress};
use turnstile_x86insn::operation::{Kind, Operation, Source};

use super::access::{self, Access, Failed};
use super::bus::{self, Own};
use super::crash::Crash;
use super::keep::keep;
use super::service;
use super::tier::{Code, control, done, executed_to};
use crate::cpu::svm::event::{self, Exception};
use crate::cpu::svm::{Vmcb, code};
use crate::irq::lapic;
use crate::service::Service;
use crate::vcpu::frame::{Frame, resident};
use crate::vcpu::next::{Next, skip_to};
use crate::vcpu::statistics;
use crate::vm::bell::{From, Number};
use crate::vm::monitor::Monitor;
use crate::vm::{Vcpu, Vm};

/// EXITINFO1 of a nested page fault.
mod info {
    /// The entry is there, and does not allow the access.
    pub const PRESENT: u64 = 1 << 0;
    pub const WRITE: u64 = 1 << 1;
    pub const FETCH: u64 = 1 << 4;
    /// The guest's page tables were being walked.
    pub const WALK: u64 = 1 << 33;
}

keep! {
    /// Nested page faults, and exits that no table has. An access is to any register.
    light => any: rsi 40, rdx 48, r8 24, r9 16, r10 8, r11 0
}

/// First touches of memory, and loads and stores of the interrupt controllers that have been decoded before; the rest is left to
/// the full tier.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
extern "C" fn any<N: Next>(frame: &mut Frame, _: u64, _: u64) -> u32 {
    let vmcb = control(frame);
    if vmcb.exit_code() as u32 != code::NESTED_PAGE_FAULT {
        return Code::FULL;
    }
    match bus::own(resident(frame), vmcb.exit_info()[1]) {
        Some(own) => access_own::<N>(frame, vmcb, own),
        None => access_other::<N>(frame, vmcb),
    }
}

/// An access to no interrupt controller. HOT.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
#[inline(never)] // Has registers of its own.
fn access_other<N: Next>(frame: &mut Frame, vmcb: &mut Vmcb) -> u32 {
    let (vcpu, address) = (resident(frame), vmcb.exit_info()[1]);
    if vcpu.vm.life().ram.is_on_demand() {
        return light_touch::<N>(frame, vmcb, vcpu.vm);
    }
    if event::was_cut_short(vmcb) {
        return Code::FULL;
    }
    match vcpu.bell_at(address) {
        Some((place, service)) => ring_again::<N>(frame, vmcb, place, service),
        None => touch_nothing::<N>(frame, vmcb),
    }
}

/// An access to an interrupt controller.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
#[inline(never)] // Uses all registers, which first touches of memory are not to pay for.
fn access_own<N: Next>(frame: &mut Frame, vmcb: &mut Vmcb, own: Own) -> u32 {
    let ([info, _], vcpu) = (vmcb.exit_info(), resident(frame));
    if matches!(own, Own::Apic(_)) {
        statistics::note::<N>(frame, Reason::ApicPage);
    }
    if info & (info::FETCH | info::WALK) != 0 || event::was_cut_short(vmcb) {
        return Code::FULL;
    }
    let Some(code) = access::fetch_light(vmcb, vcpu) else { return Code::FULL };
    let rip = vmcb.rip();
    let Some(operation) = vcpu.owned(|owned| owned.decoded.find(rip, 64, code).copied()) else {
        return Code::FULL;
    };
    match operation.kind {
        Kind::Load { to, signed: false }
            if operation.size == 4 && to.size == 4 && info & info::WRITE == 0 =>
        {
            let Some(place) = frame.place(vmcb, to.number.into()) else { return Code::FULL };
            let value = bus::read_own(vcpu, vmcb, own, 4) & 0xffff_ffff;
            // SAFETY: a slot of the frame, or RAX in the control block; nobody else refers to either.
            unsafe { place.write(value) };
        }
        Kind::Store(source) if operation.size == 4 && info & info::WRITE != 0 => {
            let value = match source {
                Source::Register(gpr) => {
                    let Some(place) = frame.place(vmcb, gpr.number.into()) else { return Code::FULL };
                    // SAFETY: as above.
                    unsafe { place.read() }
                }
                Source::Immediate(value) => value,
            };
            bus::write_own(vcpu, vmcb, own, 4, value);
        }
        _ => return Code::FULL,
    }
    statistics::count::<N>(vcpu, Event::DecodedBefore);
    statistics::count::<N>(vcpu, accessed(info & info::WRITE != 0));
    executed_to::<N>(frame, vmcb, rip.wrapping_add(operation.length.into()))
}

/// A doorbell that the same instruction has rung before, unless the instruction is another one now. HOT.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
#[inline(never)] // Uses all registers.
fn ring_again<N: Next>(frame: &mut Frame, vmcb: &mut Vmcb, place: u64, service: &'static Service) -> u32 {
    let bell = resident(frame).bell();
    if !bell.is_same(vmcb) {
        return touch_device::<N>(frame, vmcb);
    }
    let Number { from, mask, constant } = bell.number;
    let queue = match from {
        From::Rax => vmcb.rax() & mask,
        From::Pushed(slot) => frame.pushed(slot) & mask,
        From::Place => ((place / 4) & mask) + constant,
    };
    if queue >= Pending::QUEUES {
        return touch_device::<N>(frame, vmcb);
    }
    if service.rings(queue) {
        return ring_within::<N>(frame, vmcb, service);
    }
    rung_again::<N>(frame, vmcb, service)
}

/// The same, if nobody was inside the service.
#[inline(never)] // Needs a stack frame, which who finds somebody inside is not to pay for.
fn ring_within<N: Next>(frame: &mut Frame, vmcb: &mut Vmcb, service: &'static Service) -> u32 {
    service::rung(resident(frame), service);
    rung_again::<N>(frame, vmcb, service)
}

/// The end of both.
#[inline(always)] // A few instructions.
fn rung_again<N: Next>(frame: &mut Frame, vmcb: &mut Vmcb, service: &Service) -> u32 {
    let vcpu = resident(frame);
    if N::COUNTS {
        service::account_doorbell(frame, service);
    }
    statistics::count::<N>(vcpu, Event::DecodedBefore);
    statistics::count::<N>(vcpu, Event::MmioWrite);
    executed_to::<N>(frame, vmcb, vcpu.bell().next)
}

/// A touch of no interrupt controller, by a guest whose memory is mapped on demand. HOT.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
#[inline(never)] // Needs a stack frame, which other light exits are not to pay for.
fn light_touch<N: Next>(frame: &mut Frame, vmcb: &mut Vmcb, vm: &'static Vm) -> u32 {
    let [info, address] = vmcb.exit_info();
    if event::was_cut_short(vmcb) {
        return left();
    }
    if info & info::PRESENT == 0 {
        // SAFETY: the caller has found that it is mapped on demand.
        let touched = unsafe { vm.life().ram.touch_on_demand(address, lapic::is_pending) };
        if touched == Touch::Mapped {
            statistics::add(resident(frame), Event::FirstTouch);
        }
        if touched != Touch::Foreign {
            return done::<N>(frame, vmcb);
        }
    }
    touch_nothing::<N>(frame, vmcb)
}

/// What is left to the full tier.
#[cold]
#[inline(never)] // So that the usual end does not load the code.
extern "C" fn left() -> u32 {
    Code::FULL
}

/// A load or a store, decoded before, where nothing is: it reads ones, or is lost.
#[inline(never)] // So that first touches of memory are short.
fn touch_nothing<N: Next>(frame: &mut Frame, vmcb: &mut Vmcb) -> u32 {
    let ([info, address], vcpu) = (vmcb.exit_info(), resident(frame));
    // What is RAM and faults may not be written, or is mapped by the full tier.
    if info & (info::FETCH | info::WALK) != 0 || vcpu.vm.life().ram.contains(address, 1) {
        return Code::FULL;
    }
    if vcpu.vm.services().is_some() {
        return match vcpu.bell_at(address) {
            Some((place, service)) => ring_again::<N>(frame, vmcb, place, service),
            None => touch_device::<N>(frame, vmcb),
        };
    }
    let Some(code) = access::fetch_light(vmcb, vcpu) else { return Code::FULL };
    let rip = vmcb.rip();
    let Some(operation) = vcpu.owned(|owned| owned.decoded.find(rip, 64, code).copied()) else {
        return Code::FULL;
    };
    let is_write = info & info::WRITE != 0;
    match operation.kind {
        // Its other half may be somewhere else.
        _ if address % 4096 + u64::from(operation.size) > 4096 => return Code::FULL,
        Kind::Load { to, signed } if !is_write && !to.high => {
            let Some(place) = frame.place(vmcb, to.number.into()) else { return Code::FULL };
            let value = if signed { u64::MAX } else { ones(operation.size) };
            // SAFETY: a slot of the frame, or RAX in the control block; nobody else refers to either.
            unsafe { place.write(load(place.read(), value, to.size)) };
        }
        Kind::Store(_) if is_write => {}
        _ => return Code::FULL,
    }
    statistics::count::<N>(vcpu, Event::DecodedBefore);
    statistics::count::<N>(vcpu, accessed(is_write));
    executed_to::<N>(frame, vmcb, rip.wrapping_add(operation.length.into()))
}

/// A load or a store, decoded before, of a device that a service serves; where nothing is is left to the full tier.
#[inline(never)] // Only VMs with services pay for it.
fn touch_device<N: Next>(frame: &mut Frame, vmcb: &mut Vmcb) -> u32 {
    let ([info, address], vcpu) = (vmcb.exit_info(), resident(frame));
    let Some(found) = service::at_address(vcpu, address) else { return Code::FULL };
    let Some(code) = access::fetch_light(vmcb, vcpu) else { return Code::FULL };
    let rip = vmcb.rip();
    let Some(operation) = vcpu.owned(|owned| owned.decoded.find(rip, 64, code).copied()) else {
        return Code::FULL;
    };
    let (is_write, size) = (info & info::WRITE != 0, operation.size);
    if is_write && found.has_doorbell() {
        found.remember(vcpu, vmcb, &operation, code);
    }
    match operation.kind {
        // Its other half may be somewhere else.
        _ if address % 4096 + u64::from(size) > 4096 => return Code::FULL,
        Kind::Load { to, signed: false } if !is_write && to.size == size && !to.high => {
            let Some(place) = frame.place(vmcb, to.number.into()) else { return Code::FULL };
            let value = found.access_fully(vcpu, &found.event(true, size, 0));
            // SAFETY: a slot of the frame, or RAX in the control block; nobody else refers to either.
            unsafe { place.write(load(place.read(), value, size)) };
        }
        Kind::Store(Source::Immediate(value)) if is_write => {
            found.write_fully(vcpu, size, value);
        }
        Kind::Store(Source::Register(gpr)) if is_write && !gpr.high => {
            let Some(place) = frame.place(vmcb, gpr.number.into()) else { return Code::FULL };
            // SAFETY: as above.
            found.write_fully(vcpu, size, unsafe { place.read() });
        }
        _ => return Code::FULL,
    }
    if N::COUNTS {
        found.account(frame, is_write);
    }
    statistics::count::<N>(vcpu, Event::DecodedBefore);
    statistics::count::<N>(vcpu, accessed(is_write));
    executed_to::<N>(frame, vmcb, rip.wrapping_add(operation.length.into()))
}

/// So many bytes of ones.
const fn ones(size: u8) -> u64 {
    if size >= 8 { u64::MAX } else { (1 << (size as u32 * 8)) - 1 }
}

/// What a register of `size` bytes is after a load: one of four bytes clears the others (APM vol. 1, 3.1.2).
const fn load(old: u64, value: u64, size: u8) -> u64 {
    match size {
        4 => value & 0xffff_ffff,
        _ => old & !ones(size) | value & ones(size),
    }
}

/// Clears and maps the block of memory that the guest has touched first, or some of it if an interrupt comes meanwhile; false if it
/// is none that is mapped on demand. The guest does again what it did.
#[inline(always)] // Two callers, one of them light.
fn touch(vcpu: &Vcpu, info: u64, address: u64) -> bool {
    if info & info::PRESENT != 0 {
        return false;
    }
    let touched = vcpu.vm.life().ram.touch(address, lapic::is_pending);
    if touched == Touch::Mapped {
        statistics::add(vcpu, Event::FirstTouch);
    } else if touched == Touch::Dry {
        wait_for_memory(vcpu);
    }
    touched != Touch::Foreign
}

/// The pool is empty: that is said before the guest goes on, once.
#[cold]
#[inline(never)] // Not part of what others pay.
fn wait_for_memory(vcpu: &Vcpu) {
    if vcpu.vm.taken.has_news() {
        vcpu.attention.raise(Reasons::SERVICE);
    }
}

/// All others.
pub(super) fn full(frame: &mut Frame, vmcb: &mut Vmcb, vcpu: &'static Vcpu, monitor: &dyn Monitor) {
    let [info, address] = vmcb.exit_info();
    if touch(vcpu, info, address) {
        return event::deliver_again(vmcb);
    }
    if event::was_cut_short(vmcb) {
        // Its stack, its descriptor tables or its task state are not in memory: it could not be repeated.
        return vcpu.vm.stop(Stop::Crash(Crash::Delivery as u16));
    }
    if info & info::WALK != 0 {
        return vcpu.vm.stop(Stop::Crash(Crash::Tables as u16));
    }
    if info & info::FETCH != 0 {
        // Bytes of ones are no instruction.
        return Exception::UNDEFINED.inject(vmcb);
    }
    let Some((code, valid)) = access::fetch(vmcb, &vcpu.vm.life().ram) else { return };
    let (rip, bitness) = (vmcb.rip(), access::bitness(vmcb));
    let found = vcpu.owned(|owned| owned.decoded.find(rip, bitness, code).copied());
    statistics::add(vcpu, if found.is_some() { Event::DecodedBefore } else { Event::Decoded });
    let known = found.or_else(|| vcpu.owned(|owned| owned.decoded.decode(rip, bitness, code, valid)));
    let Some(operation) = known else { return Exception::UNDEFINED.inject(vmcb) };
    let write = info & info::WRITE != 0;
    if write && operation.only_reads() || !write && operation.only_writes() {
        // Not what has faulted: the code has changed. Executed again, it does what it is now.
        return;
    }
    let access = Access { vmcb, vcpu, monitor };
    let mut instruction = Instruction { frame, access, address };
    if let Some(page) = vcpu.statistics {
        page.count(accessed(write));
        return carry_out_counted(&mut instruction, &operation, write);
    }
    carry_out(&mut instruction, &operation, write);
}

/// The same where statistics are kept: the exit may be for a service.
#[cold]
#[inline(never)] // Others are not to pay for it.
fn carry_out_counted(instruction: &mut Instruction<'_>, operation: &Operation, write: bool) {
    carry_out(instruction, operation, write);
    if let Some(found) = service::at_address(instruction.access.vcpu, instruction.address) {
        found.account(instruction.frame, write);
    }
}

/// The event of an access to a device.
const fn accessed(write: bool) -> Event {
    if write { Event::MmioWrite } else { Event::MmioRead }
}

/// An instruction that is carried out.
struct Instruction<'a> {
    frame: &'a mut Frame,
    access: Access<'a>,
    /// Where the device is.
    address: u64,
}

fn carry_out(instruction: &mut Instruction<'_>, operation: &Operation, write: bool) {
    if instruction.address % 4096 + u64::from(operation.size) > 4096 {
        // Its other half is somewhere else.
        return Exception::PROTECTION.inject(instruction.access.vmcb);
    }
    let next = instruction.access.vmcb.rip().wrapping_add(operation.length.into());
    match execute::execute(instruction, operation, write) {
        Ok(Progress::Next) => skip_to(instruction.access.vmcb, next),
        Ok(Progress::Again) => {}
        Err(failed) => failed.inject(instruction.access.vmcb),
    }
}

impl Machine for Instruction<'_> {
    type Error = Failed;

    fn register(&self, number: u8) -> u64 {
        self.frame.get(self.access.vmcb, number.into())
    }

    fn set_register(&mut self, number: u8, value: u64) {
        self.frame.set(self.access.vmcb, number.into(), value);
    }

    fn flags(&self) -> u64 {
        self.access.vmcb.rflags()
    }

    fn set_flags(&mut self, flags: u64) {
        self.access.vmcb.set_rflags(flags);
    }

    fn read(&mut self, size: u8) -> u64 {
        bus::read(self.access.vcpu, self.access.vmcb, self.address, size)
    }

    fn write(&mut self, size: u8, value: u64) {
        // What faults though it is RAM is read-only: writes are lost, as those to a ROM are.
        if !self.access.vcpu.vm.life().ram.contains(self.address, size.into()) {
            bus::write(self.access.vcpu, self.access.vmcb, self.address, size, value);
        }
    }

    fn load(&mut self, segment: u8, offset: u64, size: u8) -> Result<u64, Failed> {
        self.access.load(segment, offset, size)
    }

    fn store(&mut self, offset: u64, size: u8, value: u64) -> Result<(), Failed> {
        self.access.store(access::ES, offset, size, value)
    }

    fn probe(&mut self, segment: u8, offset: u64, size: u8, write: bool) -> Result<(), Failed> {
        self.access.probe(segment, offset, size, write)
    }
}
