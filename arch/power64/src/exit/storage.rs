// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the partition's tables have nothing for (Power ISA 3.0B Book III, 6.5.18 and 6.5.19): devices, memory that is mapped
//! when it is first used, and addresses at which there is nothing.

use turnstile_arch_common::demand::Touch;
use turnstile_exitstat::Event;
use turnstile_vm::lifecycle::Stop;

use super::crash::Crash;
use super::instruction::{self, Access};
use super::walk::{self, Context};
use super::{Code, done, inject, resident};
use crate::cpu::regs::{ASDR, HDAR, HDSISR, HSRR1, PIDR, msr};
use crate::cpu::vector;
use crate::vcpu::frame::Frame;
use crate::vm::Vcpu;
use crate::vm::monitor::Monitor;

/// Bits of HDSISR and DSISR: why.
mod status {
    /// No entry.
    pub const NO_ENTRY: u64 = 1 << 30;
    /// An access that caching-inhibited memory does not take.
    pub const KIND: u64 = 1 << 26;
    /// A store.
    pub const STORE: u64 = 1 << 25;
    /// It was no access of the instruction, but one to the guest's own tables.
    pub const TABLES: u64 = 1 << 17;
}

const PAGE: u64 = 0xfff;
/// ASDR has the guest's real address of the page.
const REAL: u64 = 0x0fff_ffff_ffff_f000;
/// The bits of SRR1 that say why an instruction storage interrupt happened: those of HSRR1.
const FETCH_STATUS: u64 = 0x5820_0000;
const FETCH_NO_ENTRY: u64 = 1 << 30;

/// The first touch of memory that is mapped on demand; everything else is left to the full tier.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
#[inline(never)] // Not of the exits that are more frequent.
pub(super) fn light_data(frame: &Frame) -> u32 {
    let why = HDSISR.read();
    if why & status::NO_ENTRY != 0 && touch(frame) { done(frame) } else { Code::FULL }
}

/// The same of an instruction fetch.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
#[inline(never)] // As above.
pub(super) fn light_instruction(frame: &Frame) -> u32 {
    if HSRR1.read() & FETCH_NO_ENTRY != 0 && touch(frame) { done(frame) } else { Code::FULL }
}

/// Clears and maps the block of memory that the guest has touched first; false if it is none that is mapped on demand.
#[inline(always)] // Two callers, which are the exits for it.
fn touch(frame: &Frame) -> bool {
    let touched = resident(frame).vm.life().ram.touch(ASDR.read() & REAL);
    if touched == Touch::Mapped {
        frame.timing.count(Event::FirstTouch);
    }
    touched != Touch::Foreign
}

/// A data access.
pub(super) fn data(frame: &mut Frame, vcpu: &'static Vcpu, monitor: &dyn Monitor) {
    let (why, effective) = (HDSISR.read(), HDAR.read());
    let real = ASDR.read() & REAL;
    // What is mapped, and is used as it may not be; or an address in the guest's own tables.
    if why & status::TABLES != 0 || why & status::NO_ENTRY == 0 {
        return inject::data_storage(frame, effective, why);
    }
    if !access(frame, vcpu, monitor, real | effective & PAGE, effective) {
        inject::data_storage(frame, effective, why & status::STORE | status::KIND);
    }
}

/// An access to a device. False if there is none, or it does not take such an access.
fn access(
    frame: &mut Frame,
    vcpu: &'static Vcpu,
    monitor: &dyn Monitor,
    address: u64,
    effective: u64,
) -> bool {
    let context = Context { msr: frame.msr, process: PIDR.read(), process_table: vcpu.vm.process_table() };
    let instruction = walk::fetch(&vcpu.vm.life().ram, &context, frame.pc);
    let Some(access) = instruction.and_then(instruction::decode) else { return false };
    let done = address & PAGE <= PAGE + 1 - u64::from(access.size)
        && carry_out(frame, vcpu, monitor, address, access);
    if done {
        if let Some(register) = access.update {
            frame.set_gpr(register, effective);
        }
        frame.pc = frame.pc.wrapping_add(4);
    }
    done
}

/// Moves the bytes.
fn carry_out(
    frame: &mut Frame,
    vcpu: &'static Vcpu,
    monitor: &dyn Monitor,
    address: u64,
    access: Access,
) -> bool {
    let little = frame.msr & msr::LE != 0;
    if access.store {
        let value = access.to_device(frame.gpr(access.register), little);
        return monitor.mmio_write(vcpu.vm, address, access.size, value);
    }
    let Some(value) = monitor.mmio_read(vcpu.vm, address, access.size) else { return false };
    frame.set_gpr(access.register, access.to_register(value, little));
    true
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
