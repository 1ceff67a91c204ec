// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The local APIC, as a page of memory or by MSRs (AMD APM vol. 2, chapter 16; Intel SDM vol. 3, chapter 11).

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::cpu::{self, msr};
use crate::mmio;

/// The vector of spurious interrupts.
pub const SPURIOUS: u8 = 0xff;
/// Where the page is after a reset.
pub const PAGE: u64 = 0xfee0_0000;

/// Offsets in the page; the MSR of each is `0x800` and a sixteenth of it.
pub mod register {
    /// Identifier.
    pub const ID: u32 = 0x20;
    /// Version.
    pub const VERSION: u32 = 0x30;
    /// Task priority.
    pub const TPR: u32 = 0x80;
    /// Arbitration priority.
    pub const APR: u32 = 0x90;
    /// Processor priority.
    pub const PPR: u32 = 0xa0;
    /// End of interrupt.
    pub const EOI: u32 = 0xb0;
    /// Logical destination.
    pub const LDR: u32 = 0xd0;
    /// Destination format.
    pub const DFR: u32 = 0xe0;
    /// Spurious vector, and the switch of the APIC.
    pub const SVR: u32 = 0xf0;
    /// In service, the first of eight.
    pub const ISR: u32 = 0x100;
    /// Trigger modes, the first of eight.
    pub const TMR: u32 = 0x180;
    /// Requested, the first of eight.
    pub const IRR: u32 = 0x200;
    /// Errors.
    pub const ESR: u32 = 0x280;
    /// Interrupt command.
    pub const ICR: u32 = 0x300;
    /// Its destination, in the page only.
    pub const ICR_HIGH: u32 = 0x310;
    /// Local vector table: timer.
    pub const LVT_TIMER: u32 = 0x320;
    /// LINT0.
    pub const LVT_LINT0: u32 = 0x350;
    /// LINT1.
    pub const LVT_LINT1: u32 = 0x360;
    /// Errors.
    pub const LVT_ERROR: u32 = 0x370;
    /// The timer's first count.
    pub const TIMER_INITIAL: u32 = 0x380;
    /// The timer's count.
    pub const TIMER_CURRENT: u32 = 0x390;
    /// The timer's divider.
    pub const TIMER_DIVIDE: u32 = 0x3e0;
    /// Self-IPI, by MSR only.
    pub const SELF_IPI: u32 = 0x3f0;
}

/// Fields of the interrupt command register.
pub mod icr {
    /// NMI.
    pub const NMI: u64 = 4 << 8;
    /// INIT.
    pub const INIT: u64 = 5 << 8;
    /// Start-up.
    pub const STARTUP: u64 = 6 << 8;
    /// Lowest priority.
    pub const LOWEST: u64 = 1 << 8;
    /// Logical destination.
    pub const LOGICAL: u64 = 1 << 11;
    /// Sending has not come to its end.
    pub const BUSY: u64 = 1 << 12;
    /// Assert.
    pub const ASSERT: u64 = 1 << 14;
    /// To itself.
    pub const SELF: u64 = 1 << 18;
    /// To all, itself included.
    pub const ALL: u64 = 2 << 18;
    /// To all others.
    pub const OTHERS: u64 = 3 << 18;
}

/// A local vector table entry is masked.
pub const MASKED: u32 = 1 << 16;
/// The timer is periodic.
pub const PERIODIC: u32 = 1 << 17;
/// The timer takes a deadline.
pub const DEADLINE: u32 = 2 << 17;
const ENABLED: u64 = 1 << 11;
const X2APIC: u64 = 1 << 10;

static IS_X2APIC: AtomicBool = AtomicBool::new(false);

/// Says whether the APICs are driven by MSRs.
pub fn is_x2apic() -> bool {
    IS_X2APIC.load(Relaxed)
}

/// Uses MSRs if this machine can, or if it may not, memory; sets this CPU's APIC up.
pub fn init() {
    init_as(cpu::has(cpu::feature::X2APIC));
}

/// Uses MSRs or memory on all CPUs, and sets this CPU's APIC up.
pub fn init_as(x2apic: bool) {
    IS_X2APIC.store(x2apic, Relaxed);
    init_cpu();
}

/// Sets this CPU's APIC up: nothing pending, nothing in service, all sources masked, every priority let in.
pub fn init_cpu() {
    let base = cpu::read_msr(msr::APIC_BASE) & !(ENABLED | X2APIC);
    let wanted = if is_x2apic() { ENABLED | X2APIC } else { ENABLED };
    let now = cpu::read_msr(msr::APIC_BASE) & (ENABLED | X2APIC);
    if now & X2APIC != 0 && wanted & X2APIC == 0 {
        // The way back leads over the APIC that is switched off.
        cpu::write_msr(msr::APIC_BASE, base);
    }
    if now != wanted {
        cpu::write_msr(msr::APIC_BASE, base | ENABLED);
        cpu::write_msr(msr::APIC_BASE, base | wanted);
    }
    write(register::SVR, 0x100 | u32::from(SPURIOUS));
    for entry in [register::LVT_TIMER, register::LVT_LINT0, register::LVT_LINT1, register::LVT_ERROR] {
        write(entry, MASKED | 0xfe);
    }
    write(register::TIMER_INITIAL, 0);
    write(register::TPR, 0);
    if !is_x2apic() {
        write(register::DFR, u32::MAX);
        write(register::LDR, 1 << (24 + cpu::this().index() % 8));
    }
    drain();
}

/// Takes and ends what is pending and in service.
fn drain() {
    while (0..8).any(|word| read(register::ISR + 16 * word) != 0) {
        write(register::EOI, 0);
    }
}

/// Reads a register.
pub fn read(offset: u32) -> u32 {
    match is_x2apic() {
        true => cpu::read_msr(msr::X2APIC + offset / 16) as u32,
        false => mmio::read32(PAGE + u64::from(offset)),
    }
}

/// Writes a register.
pub fn write(offset: u32, value: u32) {
    match is_x2apic() {
        true => cpu::write_msr(msr::X2APIC + offset / 16, u64::from(value)),
        false => mmio::write32(PAGE + u64::from(offset), value),
    }
}

/// This CPU's identifier.
pub fn id() -> u32 {
    let id = read(register::ID);
    if is_x2apic() { id } else { id >> 24 }
}

/// Writes the interrupt command register.
pub fn send(destination: u32, command: u64) {
    if is_x2apic() {
        cpu::write_msr(msr::X2APIC + register::ICR / 16, u64::from(destination) << 32 | command);
        return;
    }
    while u64::from(read(register::ICR)) & icr::BUSY != 0 {
        cpu::relax();
    }
    write(register::ICR_HIGH, destination << 24);
    write(register::ICR, command as u32);
}

/// Sends an interrupt of this vector to the CPU with this identifier.
pub fn send_to(destination: u32, vector: u8) {
    send(destination, icr::ASSERT | u64::from(vector));
}

/// Sends an interrupt of this vector to this CPU.
pub fn send_to_self(vector: u8) {
    match is_x2apic() {
        true => write(register::SELF_IPI, u32::from(vector)),
        false => send(0, icr::SELF | icr::ASSERT | u64::from(vector)),
    }
}

/// Ends the interrupt of highest priority that is in service.
pub fn end() {
    write(register::EOI, 0);
}

/// Says whether a vector's bit is set in one of the three registers of 256 bits.
pub fn bit(first: u32, vector: u8) -> bool {
    read(first + 16 * u32::from(vector / 32)) >> (vector % 32) & 1 != 0
}

/// Lets the timer fire once, or periodically, after so many ticks of its clock.
pub fn set_timer(vector: u8, mode: u32, count: u32) {
    write(register::TIMER_DIVIDE, 0xb);
    write(register::LVT_TIMER, mode | u32::from(vector));
    write(register::TIMER_INITIAL, count);
}

/// Stops the timer.
pub fn stop_timer() {
    write(register::LVT_TIMER, MASKED | 0xfe);
    write(register::TIMER_INITIAL, 0);
}
