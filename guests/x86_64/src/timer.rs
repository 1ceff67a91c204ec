// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Time: the time-stamp counter and how fast it is, and the APIC's timer set by it.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub use turnstile_guests_common::clock::{microseconds, ticks, wait};

use turnstile_guests_common::clock::Clock;

use crate::cpu::{feature, msr};
use crate::{apic, cpu, kvm, mmio, options, pit};

static FREQUENCY: AtomicU64 = AtomicU64::new(0);

/// Returns the time-stamp counter.
pub fn now() -> u64 {
    cpu::tsc()
}

/// Returns its ticks per second: what the option `tsc=` says, or CPUID, or KVM's clock, or the 8254.
pub fn frequency() -> u64 {
    match FREQUENCY.load(Relaxed) {
        0 => {
            let told = Some(options::number("tsc", 0)).filter(|hertz| *hertz != 0);
            let hertz =
                told.or_else(of_cpuid).or_else(of_kvm_clock).or_else(measured).unwrap_or(1_000_000_000);
            FREQUENCY.store(hertz, Relaxed);
            hertz
        }
        hertz => hertz,
    }
}

/// Leaf 0x15: crystal and ratio; leaf 0x16: megahertz; leaf 0x4000_0010: kilohertz, of hypervisors.
fn of_cpuid() -> Option<u64> {
    let [most, ..] = cpu::cpuid(0, 0);
    if most >= 0x15 {
        let [denominator, numerator, crystal, _] = cpu::cpuid(0x15, 0).map(u64::from);
        if denominator * numerator * crystal != 0 {
            return Some(crystal * numerator / denominator);
        }
    }
    let [hypervisor_most, ..] = cpu::cpuid(0x4000_0000, 0);
    let [kilohertz, ..] = cpu::cpuid(0x4000_0010, 0);
    (cpu::has(cpu::feature::HYPERVISOR)
        && (0x4000_0010..0x4001_0000).contains(&hypervisor_most)
        && kilohertz != 0)
        .then(|| u64::from(kilohertz) * 1000)
}

#[repr(C, align(64))]
struct ClockRecord([AtomicU64; 4]);

static RECORD: ClockRecord = ClockRecord([const { AtomicU64::new(0) }; 4]);

/// KVM's record of a CPU's clock has what ticks are multiplied with to get nanoseconds.
fn of_kvm_clock() -> Option<u64> {
    if !kvm::has(kvm::feature::CLOCK) {
        return None;
    }
    let address = RECORD.0.as_ptr() as u64;
    cpu::write_msr(kvm::msr::SYSTEM_TIME, address | 1);
    let scale = mmio::read64(address + 24);
    cpu::write_msr(kvm::msr::SYSTEM_TIME, 0);
    let (multiplier, shift) = (scale & 0xffff_ffff, (scale >> 32) as u8 as i8);
    if multiplier == 0 {
        return None;
    }
    // Nanoseconds of a tick: 2^shift * multiplier / 2^32.
    let nominator = 1_000_000_000_u128 << 32;
    let hertz = match shift {
        0.. => (nominator / u128::from(multiplier)) >> shift,
        _ => (nominator << -i32::from(shift)) / u128::from(multiplier),
    };
    Some(rounded(hertz as u64))
}

/// A hundredth of a second of the 8254.
fn measured() -> Option<u64> {
    const PART: u64 = 100;
    let count = (pit::FREQUENCY / PART) as u16;
    let start = now();
    pit::measure(count, 10_000_000).then(|| rounded((now() - start) * PART))
}

/// What was derived or measured is inexact; a clock of about so many megahertz has just as many.
fn rounded(hertz: u64) -> u64 {
    let whole = (hertz + 500_000) / 1_000_000 * 1_000_000;
    if whole.abs_diff(hertz) * 1000 < hertz { whole } else { hertz }
}

/// Returns the time-stamp counter as a clock.
pub fn clock() -> Clock {
    Clock { now, frequency: frequency(), relax: cpu::relax }
}

/// Ticks of the APIC's timer in 2^20 ticks of the time-stamp counter; measured once.
static APIC_TICKS: AtomicU64 = AtomicU64::new(0);
/// The timer counts 32 bits.
const LONGEST: u64 = 0xffff_f000;

/// Lets this CPU's APIC send an interrupt when the time-stamp counter is `due`: by a deadline, if it knows them.
pub fn arm(vector: u8, due: u64) {
    if cpu::has(feature::TSC_DEADLINE) {
        apic::write(apic::register::LVT_TIMER, apic::DEADLINE | u32::from(vector));
        // A deadline of zero would switch it off.
        cpu::write_msr(msr::TSC_DEADLINE, due.max(1));
        return;
    }
    let scale = apic_ticks();
    let count = (u128::from(due.saturating_sub(now())) * u128::from(scale)) >> 20;
    apic::set_timer(vector, 0, count.clamp(1, u128::from(LONGEST)) as u32);
}

/// Stops what [`arm`] began.
pub fn disarm() {
    if cpu::has(feature::TSC_DEADLINE) {
        cpu::write_msr(msr::TSC_DEADLINE, 0);
    }
    apic::stop_timer();
}

/// Returns how many ticks of the APIC's timer, undivided, are in 2^20 ticks of the time-stamp counter.
pub fn apic_ticks() -> u64 {
    match APIC_TICKS.load(Relaxed) {
        0 => {
            apic::set_timer(0xfe, apic::MASKED, u32::MAX);
            let (start, first) = (now(), apic::read(apic::register::TIMER_CURRENT));
            while now() - start < 1 << 20 {}
            let (end, last) = (now(), apic::read(apic::register::TIMER_CURRENT));
            apic::stop_timer();
            let scale = (u64::from(first - last) << 20) / (end - start);
            APIC_TICKS.store(scale.max(1), Relaxed);
            scale.max(1)
        }
        scale => scale,
    }
}
