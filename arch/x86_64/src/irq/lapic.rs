// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine's local APICs: kicks, and the timer (APM vol. 2, chapter 16).
//!
//! In x2APIC mode where the CPU has it, by registers in memory otherwise.

use core::sync::atomic::{AtomicU64, Ordering};

use turnstile_vm::attention::KickToken;

use crate::cpu;
use crate::cpu::regs::{APIC_BASE, TSC_DEADLINE};
use crate::irq::interrupts;

/// Where the registers of an xAPIC are mapped; zero in x2APIC mode. `interrupts.S` reads it.
#[unsafe(no_mangle)]
static TURNSTILE_XAPIC: AtomicU64 = AtomicU64::new(0);

/// Ticks of the timer per tick of the time stamp counter, in 2^-32; zero if the timer compares with the counter itself.
static TIMER_RATE: AtomicU64 = AtomicU64::new(0);

/// Offsets of registers in the page of an xAPIC; the number of an x2APIC's is 0x800 + offset / 16.
mod register {
    pub const ID: u32 = 0x20;
    pub const TASK_PRIORITY: u32 = 0x80;
    pub const SPURIOUS: u32 = 0xf0;
    /// The first of eight, one for 32 vectors.
    pub const REQUEST: u32 = 0x200;
    pub const ERROR_STATUS: u32 = 0x280;
    pub const COMMAND_LOW: u32 = 0x300;
    pub const COMMAND_HIGH: u32 = 0x310;
    pub const LVT_TIMER: u32 = 0x320;
    pub const LVT_LINT0: u32 = 0x350;
    pub const LVT_LINT1: u32 = 0x360;
    pub const LVT_ERROR: u32 = 0x370;
    pub const TIMER_INITIAL: u32 = 0x380;
    pub const TIMER_CURRENT: u32 = 0x390;
    pub const TIMER_DIVIDE: u32 = 0x3e0;
}

const BASE_X2APIC: u64 = 1 << 10;
const BASE_ENABLE: u64 = 1 << 11;
const SOFTWARE_ENABLE: u32 = 1 << 8;
const LVT_MASKED: u32 = 1 << 16;
const LVT_NMI: u32 = 0b100 << 8;
const LVT_TSC_DEADLINE: u32 = 0b10 << 17;
const DIVIDE_BY_1: u32 = 0b1011;
const ASSERT: u64 = 1 << 14;
const DELIVERY_PENDING: u32 = 1 << 12;
const INIT: u64 = 0b101 << 8;
const STARTUP: u64 = 0b110 << 8;
/// Looks at a command that is not accepted, before the next one is sent all the same.
const PATIENCE: u32 = 1_000_000;

/// CPUID Fn0000_0001_ECX.
const CPUID_X2APIC: u32 = 1 << 21;
const CPUID_TSC_DEADLINE: u32 = 1 << 24;

fn features() -> u32 {
    cpu::cpuid(1, 0)[2]
}

/// Says whether the CPU has an x2APIC.
pub fn has_x2apic() -> bool {
    features() & CPUID_X2APIC != 0
}

/// Uses the mode that the firmware has left; the registers of an xAPIC are mapped at `address`. On the boot CPU, alone.
pub fn keep_mode(address: u64) {
    let is_x2apic = APIC_BASE.read() & BASE_X2APIC != 0;
    TURNSTILE_XAPIC.store(if is_x2apic { 0 } else { address }, Ordering::Relaxed);
}

/// Uses the x2APIC from now on, if the CPU has one. On the boot CPU, alone, and once the timer is measured: QEMU, where it
/// counts instructions, ends itself when the current count is read as a model-specific register.
pub fn prefer_x2apic() {
    if has_x2apic() {
        TURNSTILE_XAPIC.store(0, Ordering::Relaxed);
    }
}

#[inline]
fn xapic() -> Option<u64> {
    Some(TURNSTILE_XAPIC.load(Ordering::Relaxed)).filter(|address| *address != 0)
}

#[cfg(target_os = "none")]
#[inline]
fn write(register: u32, value: u32) {
    match xapic() {
        // SAFETY: the page is mapped as device memory; the callers write what the manual says.
        Some(page) => unsafe { core::ptr::write_volatile((page + u64::from(register)) as *mut u32, value) },
        // SAFETY: the CPU has an x2APIC, which is enabled.
        None => unsafe { crate::cpu::regs::write_msr(0x800 + register / 16, value.into()) },
    }
}

#[cfg(target_os = "none")]
fn read(register: u32) -> u32 {
    match xapic() {
        // SAFETY: as for `write`.
        Some(page) => unsafe { core::ptr::read_volatile((page + u64::from(register)) as *const u32) },
        // SAFETY: as for `write`.
        None => unsafe { crate::cpu::regs::read_msr(0x800 + register / 16) as u32 },
    }
}

#[cfg(not(target_os = "none"))]
fn write(register: u32, value: u32) {
    let _ = register;
    crate::cpu::regs::fakes::write("APIC", value.into());
}

#[cfg(not(target_os = "none"))]
fn read(register: u32) -> u32 {
    let _ = register;
    crate::cpu::regs::fakes::read("APIC") as u32
}

/// Sends an interrupt command; the destination is in the upper half, in the form of the mode.
#[inline]
fn command(value: u64) {
    if xapic().is_none() {
        #[cfg(target_os = "none")]
        // SAFETY: the CPU has an x2APIC, which is enabled. AMD's is written in program order (APM vol. 2, 16.11.2), so
        // what the target shall find has been stored.
        unsafe {
            crate::cpu::regs::write_msr(0x830, value);
        }
        #[cfg(not(target_os = "none"))]
        crate::cpu::regs::fakes::write("ICR", value);
        return;
    }
    write(register::COMMAND_HIGH, (value >> 32) as u32);
    write(register::COMMAND_LOW, value as u32);
    for _ in 0..PATIENCE {
        if read(register::COMMAND_LOW) & DELIVERY_PENDING == 0 {
            return;
        }
        cpu::relax();
    }
}

/// The destination of commands to the CPU with this identification.
fn destination(apic_id: u32) -> u64 {
    let shift = if xapic().is_none() { 32 } else { 56 };
    u64::from(apic_id) << shift
}

/// Returns what kicks a CPU: a fixed interrupt to it, as a command.
pub fn kick_token(apic_id: u32) -> KickToken {
    destination(apic_id) | ASSERT | u64::from(interrupts::KICK)
}

/// Makes a CPU look at the attention word of the vCPU that is resident there.
#[inline]
pub fn kick(token: KickToken) {
    command(token);
}

/// Makes a CPU look at its run queue.
pub fn reschedule(token: KickToken) {
    command(token ^ u64::from(interrupts::KICK ^ interrupts::RESCHEDULE));
}

/// Resets a CPU, which then waits for [`start_up`] (Intel SDM vol. 3, 9.4.4; APM vol. 2, 16.5).
pub fn init(apic_id: u32) {
    command(destination(apic_id) | ASSERT | INIT);
}

/// Starts a CPU in real mode at a page below 1 MiB.
pub fn start_up(apic_id: u32, page: u64) {
    command(destination(apic_id) | ASSERT | STARTUP | page >> 12);
}

/// Returns the identification of this CPU's local APIC.
pub fn id() -> u32 {
    let id = read(register::ID);
    if xapic().is_none() { id } else { id >> 24 }
}

/// Turns this CPU's local APIC on, in the mode that was chosen.
pub fn enable() {
    let mode = if xapic().is_none() { BASE_X2APIC } else { 0 };
    let base = APIC_BASE.read() | BASE_ENABLE;
    // SAFETY: the hypervisor drives the local APIC; its registers stay where they are. From off there is only a way to
    // xAPIC mode, from there to x2APIC mode, and none back: `mode` is never behind the mode that the CPU is in.
    unsafe {
        APIC_BASE.write(base);
        APIC_BASE.write(base | mode);
    }
    write(register::TASK_PRIORITY, 0);
    write(register::SPURIOUS, SOFTWARE_ENABLE | u32::from(interrupts::SPURIOUS));
    write(register::LVT_LINT0, LVT_MASKED);
    write(register::LVT_LINT1, LVT_NMI);
    write(register::LVT_ERROR, interrupts::APIC_ERROR.into());
    write(register::TIMER_DIVIDE, DIVIDE_BY_1);
    let mode = if uses_deadline() { LVT_TSC_DEADLINE } else { 0 };
    write(register::LVT_TIMER, mode | u32::from(interrupts::TIMER));
}

/// Returns and clears what errors the local APIC has seen (APM vol. 2, 16.4.6).
pub fn errors() -> u32 {
    write(register::ERROR_STATUS, 0);
    read(register::ERROR_STATUS)
}

/// Says whether this CPU has interrupts to take: those that wait while the global interrupt flag is zero.
#[inline(always)] // Behind each slice of a first touch.
pub fn is_pending() -> bool {
    (0..8).any(|word| read(register::REQUEST + 16 * word) != 0)
}

fn uses_deadline() -> bool {
    features() & CPUID_TSC_DEADLINE != 0
}

/// Runs the timer from its highest count, masked, to see how fast it is.
pub fn start_measuring() {
    write(register::LVT_TIMER, LVT_MASKED | u32::from(interrupts::TIMER));
    write(register::TIMER_INITIAL, u32::MAX);
}

/// Ends the measurement, in which the time stamp counter went on by `ticks`.
pub fn end_measuring(ticks: u64) {
    let counted = u64::from(u32::MAX - read(register::TIMER_CURRENT));
    write(register::TIMER_INITIAL, 0);
    if !uses_deadline() {
        let rate = u128::from(counted) << 32;
        TIMER_RATE.store((rate / u128::from(ticks.max(1))).max(1) as u64, Ordering::Relaxed);
    }
    enable();
}

/// Lets the timer ring when the time stamp counter reaches `at`, at once if it has; earlier than that if its own counter
/// does not reach so far. `None` stops it.
pub(crate) fn set_timer(at: Option<u64>) {
    let rate = TIMER_RATE.load(Ordering::Relaxed);
    if rate == 0 {
        // SAFETY: the timer rings on this CPU, or is off.
        unsafe { TSC_DEADLINE.write(at.map_or(0, |at| at.max(1))) };
        return;
    }
    let Some(at) = at else { return write(register::TIMER_INITIAL, 0) };
    write(register::TIMER_INITIAL, count(at.saturating_sub(cpu::ticks()), rate));
}

/// What the timer counts down from, to ring after `ticks` of the time stamp counter or a little later: at least 1, as 0
/// stops it.
fn count(ticks: u64, rate: u64) -> u32 {
    let count = (u128::from(ticks) * u128::from(rate)).div_ceil(1 << 32);
    count.clamp(1, u32::MAX.into()) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timer_never_rings_early_nor_stops() {
        let one_to_one = 1 << 32;
        assert_eq!(count(0, one_to_one), 1);
        assert_eq!(count(1000, one_to_one), 1000);
        assert_eq!(count(1000, one_to_one / 3), 334);
        assert_eq!(count(u64::MAX, u64::MAX), u32::MAX);
    }

    #[test]
    fn a_request_to_reschedule_differs_from_a_kick_by_its_vector() {
        let token = kick_token(5);
        reschedule(token);
        let sent = crate::cpu::regs::fakes::get("ICR");
        assert_eq!(sent & 0xff, u64::from(interrupts::RESCHEDULE));
        assert_eq!(sent & !0xff, token & !0xff);
        assert_eq!(sent >> 32, 5);
    }
}
