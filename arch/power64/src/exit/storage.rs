// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the partition's tables have nothing for (Power ISA 3.0B Book III, 6.5.18 and 6.5.19): devices, memory that is mapped
//! when it is first used, and addresses at which there is nothing.

use turnstile_arch_common::demand::Touch;
use turnstile_exitstat::Event as Counted;
use turnstile_service::abi::{Event, Kind};
use turnstile_vm::attention::Reasons;
use turnstile_vm::lifecycle::Stop;

use super::crash::Crash;
use super::instruction::{self, Access};
use super::walk::{self, Context};
use super::{Code, done, inject, resident};
use crate::cpu::regs::{ASDR, HDAR, HDSISR, HSRR1, msr};
use crate::cpu::vector;
use crate::service::{Served, Services};
use crate::vcpu::frame::Frame;
use crate::vm::Vcpu;
use crate::vm::monitor::monitor;

/// Bits of HDSISR and DSISR: why.
pub(super) mod status {
    /// No entry.
    pub const NO_ENTRY: u64 = 1 << 30;
    /// An access that caching-inhibited memory does not take.
    pub const KIND: u64 = 1 << 26;
    /// A store.
    pub const STORE: u64 = 1 << 25;
    /// It was no access of the instruction, but one to the guest's own tables.
    pub const TABLES: u64 = 1 << 17;
}

/// The bits of an address inside its page.
pub(super) const PAGE: u64 = 0xfff;
/// ASDR has the guest's real address of the page.
pub(super) const REAL: u64 = 0x0fff_ffff_ffff_f000;
/// The bits of SRR1 that say why an instruction storage interrupt happened: those of HSRR1.
const FETCH_STATUS: u64 = 0x5820_0000;
const FETCH_NO_ENTRY: u64 = 1 << 30;

/// The first touch of memory that is mapped on demand; everything else is left to the full tier.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
pub(super) extern "C" fn light_data(frame: &mut Frame, _: u32) -> u32 {
    let why = HDSISR.read();
    if why & status::NO_ENTRY != 0 && comes_later(frame) { first_touch(frame) } else { Code::FULL }
}

/// The same of an instruction fetch.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
#[inline(never)] // As above.
pub(super) fn light_instruction(frame: &Frame) -> u32 {
    if HSRR1.read() & FETCH_NO_ENTRY != 0 && comes_later(frame) { first_touch(frame) } else { Code::FULL }
}

/// Says whether memory of the VM is mapped at its first touch.
#[inline(always)] // Two loads.
fn comes_later(frame: &Frame) -> bool {
    resident(frame).vm.life().ram.comes_later()
}

/// Clears and maps the block of memory that the guest has touched first; what is none that is mapped on demand is left to the
/// full tier.
#[inline(never)] // VMs whose memory is mapped at their start do not pay for its registers.
extern "C" fn first_touch(frame: &Frame) -> u32 {
    match resident(frame).vm.life().ram.touch(ASDR.read() & REAL) {
        Touch::Foreign => return Code::FULL,
        Touch::Mapped => frame.timing.count(Counted::FirstTouch),
        Touch::Dry => wait_for_memory(resident(frame)),
        Touch::Again => {}
    }
    done(frame)
}

/// The pool is empty: that is said before the guest goes on, once.
#[cold]
#[inline(never)] // Not part of what others pay.
fn wait_for_memory(vcpu: &Vcpu) {
    if vcpu.vm.taken.has_news() {
        vcpu.attention.raise(Reasons::SERVICE);
    }
}

/// A data access.
#[inline(always)] // Part of its one caller, which leaves all else to others.
pub(super) fn data(frame: &mut Frame) {
    let why = HDSISR.read();
    // What is mapped, and is used as it may not be; or an address in the guest's own tables.
    if why & status::TABLES != 0 || why & status::NO_ENTRY == 0 {
        inject::data_storage(frame, HDAR.read(), why);
        return;
    }
    let done = if frame.msr & msr::IR == 0 { real(frame) } else { translated(frame) };
    if done.is_none() {
        inject::data_storage(frame, HDAR.read(), HDSISR.read() & (status::STORE | status::KIND));
    }
}

/// An access to a device by a guest that has relocation off. `None` if there is no device, or it does not take such an access.
///
/// The frequent way calls nothing but the device: so little is kept meanwhile, and each other way is a function of its own.
#[inline(never)] // Apart from what is no access to a device.
fn real(frame: &mut Frame) -> Option<()> {
    let word = walk::fetch_real(&resident(frame).vm.life().ram, frame.msr, frame.pc)?;
    transfer(frame, word)
}

/// The same of a guest that has relocation on.
#[inline(never)] // See `real`.
fn translated(frame: &mut Frame) -> Option<()> {
    let vcpu = resident(frame);
    let word = walk::fetch(&vcpu.vm.life().ram, &Context::of(frame, vcpu), frame.pc)?;
    transfer(frame, word)
}

/// Carries the instruction out.
#[inline(always)] // The larger part of two functions.
fn transfer(frame: &mut Frame, word: u32) -> Option<()> {
    match instruction::decode_displaced(word) {
        Some(access) if access.store => store(frame, access),
        Some(_) => load(frame, word),
        None => other(frame, word),
    }
}

/// An instruction of another form.
#[inline(never)] // See `real`.
fn other(frame: &mut Frame, word: u32) -> Option<()> {
    let access = instruction::decode(word)?;
    if access.store { store(frame, access) } else { load(frame, word) }
}

/// Where an access of so many bytes goes; `None` if it goes beyond its page. What the CPU says of it is read from its registers
/// when it is needed, so that little has to be kept meanwhile.
#[inline(always)] // Part of two functions.
fn address(size: u8) -> Option<u64> {
    let offset = HDAR.read() & PAGE;
    (offset <= PAGE + 1 - u64::from(size)).then(|| ASDR.read() & REAL | offset)
}

/// A load from a device.
#[inline(never)] // See `real`.
fn load(frame: &mut Frame, word: u32) -> Option<()> {
    let access = instruction::decode(word)?;
    let value = monitor().mmio_read(resident(frame).vm, address(access.size)?, access.size)?;
    frame.set_gpr(access.register, access.to_register(value, frame.msr & msr::LE != 0));
    go_on(frame, access)
}

/// A store to a device.
#[inline(always)] // Part of the frequent way.
fn store(frame: &mut Frame, access: Access) -> Option<()> {
    let value = access.to_device(frame.gpr(access.register), frame.msr & msr::LE != 0);
    let done = monitor().mmio_write(resident(frame).vm, address(access.size)?, access.size, value);
    if done { go_on(frame, access) } else { None }
}

/// An access of the guest to a device that a service serves.
pub(super) struct Device<'a> {
    /// The device.
    pub(super) served: &'a Served,
    /// Where in it.
    offset: u64,
    /// The guest's effective address.
    address: u64,
    access: Access,
}

/// Returns which device of a service the guest accesses, if it is one, and the access one that it may make.
#[inline(always)] // One caller.
pub(super) fn device<'a>(frame: &Frame, services: &'a Services) -> Option<Device<'a>> {
    let why = HDSISR.read();
    if why & status::TABLES != 0 || why & status::NO_ENTRY == 0 {
        return None;
    }
    let address = HDAR.read();
    let (served, offset) = services.at_address(ASDR.read() & REAL | address & PAGE)?;
    let vcpu = resident(frame);
    let ram = &vcpu.vm.life().ram;
    let word = match frame.msr & msr::IR {
        0 => walk::fetch_real(ram, frame.msr, frame.pc)?,
        _ => walk::fetch(ram, &Context::of(frame, vcpu), frame.pc)?,
    };
    let access = instruction::decode(word)?;
    let size = u64::from(access.size);
    let inside = size <= served.size.saturating_sub(offset) && (address & PAGE) + size <= PAGE + 1;
    inside.then_some(Device { served, offset, address, access })
}

/// Carries such an access out: `handle` gets the event, and returns what is read.
#[inline(always)] // One caller.
pub(super) fn carry_out(frame: &mut Frame, device: &Device<'_>, handle: impl FnOnce(Event) -> u64) {
    let Device { served, offset, address, access } = device;
    let (number, size, little_endian) = (served.device, u64::from(access.size), frame.msr & msr::LE != 0);
    if access.store {
        let value = access.to_device(frame.gpr(access.register), little_endian);
        handle(Event::new(Kind::Write, [number, *offset, size, value, 0]));
    } else {
        let value = handle(Event::new(Kind::Read, [number, *offset, size, 0, 0]));
        frame.set_gpr(access.register, access.to_register(value, little_endian));
    }
    // The service may have changed HDAR.
    if let Some(register) = access.update {
        frame.set_gpr(register, *address);
    }
    frame.pc = frame.pc.wrapping_add(4);
}

/// The access is done: the guest goes on behind it.
#[inline(always)] // As above.
fn go_on(frame: &mut Frame, access: Access) -> Option<()> {
    if let Some(register) = access.update {
        frame.set_gpr(register, HDAR.read());
    }
    frame.pc = frame.pc.wrapping_add(4);
    Some(())
}

/// An instruction fetch.
pub(super) fn instruction(frame: &mut Frame, vcpu: &'static Vcpu) {
    let why = frame.msr & FETCH_STATUS;
    if frame.pc & PAGE == u64::from(vector::INSTRUCTION_STORAGE) && frame.msr & msr::RI == 0 {
        // The handler for this is not in memory either: no end would come of it.
        return vcpu.vm.stop(Stop::Crash(Crash::Fetch as u16));
    }
    inject::instruction_storage(frame, why);
}
