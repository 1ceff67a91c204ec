// SPDX-License-Identifier: Apache-2.0 OR MIT
//! KVM's paravirtual interface but for paravirtual EOI: clock, stolen time, interrupts by hypercall, kicks, polling.

use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

use turnstile_guests_x86_64::exception::vector;
use turnstile_guests_x86_64::kvm::{self, call, feature, msr};
use turnstile_guests_x86_64::test::{Outcome, Test};
use turnstile_guests_x86_64::{check, check_eq, cpu, irq, mmio, skip, smp, timer, trap};

use crate::others;

pub const TESTS: &[Test] = &[
    Test { name: "kvm-features", run: features },
    Test { name: "kvm-hypercall", run: hypercall },
    Test { name: "kvm-clock", run: clock },
    Test { name: "kvm-clock-off", run: clock_off },
    Test { name: "kvm-wall-clock", run: wall_clock },
    Test { name: "kvm-steal-time", run: steal_time },
    Test { name: "kvm-send-ipi", run: send_ipi },
    Test { name: "kvm-kick", run: kick },
    Test { name: "kvm-poll-control", run: poll_control },
    Test { name: "kvm-reserved", run: reserved },
];

/// A record that the hypervisor writes.
#[repr(C, align(64))]
struct Record([AtomicU64; 8]);

static CLOCK: Record = Record([const { AtomicU64::new(0) }; 8]);
static WALL: Record = Record([const { AtomicU64::new(0) }; 8]);
static STEAL: Record = Record([const { AtomicU64::new(0) }; 8]);

macro_rules! need {
    ($feature:expr, $name:literal) => {
        if !kvm::has($feature) {
            skip!(concat!($name, " is not offered"));
        }
    };
}

fn features() -> Outcome {
    let Some(base) = kvm::base() else { skip!("no KVM signature") };
    let [most, ..] = cpu::cpuid(base, 0);
    check!(most > base, "the signature's leaf {base:#x} says that {most:#x} is the last");
    let [features, ..] = cpu::cpuid(base + 1, 0);
    // What comes by features must have its MSR.
    for (bit, number) in [
        (feature::STEAL_TIME, msr::STEAL_TIME),
        (feature::POLL_CONTROL, msr::POLL_CONTROL),
        (feature::EOI, msr::PV_EOI),
        (feature::CLOCK, msr::SYSTEM_TIME),
    ] {
        if features >> bit & 1 != 0 {
            check!(trap::caught(|| _ = cpu::read_msr(number)).is_none(), "feature {bit} has no MSR");
        }
    }
    Ok(())
}

fn hypercall() -> Outcome {
    if kvm::base().is_none() {
        skip!("no KVM signature");
    }
    check_eq!(kvm::hypercall(0x7fff, [1, 2, 3, 4]), kvm::ENOSYS, "an unknown call");
    check_eq!(kvm::hypercall(u64::MAX, [0; 4]), kvm::ENOSYS, "an impossible call");
    Ok(())
}

/// Nanoseconds of the clock at a time, by the record: version, time stamp, nanoseconds, multiplier and shift.
fn nanoseconds(record: &Record, now: u64) -> (u64, u64) {
    let word = |index: usize| mmio::read64(record.0.as_ptr() as u64 + 8 * index as u64);
    loop {
        let version = word(0) & 0xffff_ffff;
        let (stamp, base, scale) = (word(1), word(2), word(3));
        if version & 1 != 0 || version != word(0) & 0xffff_ffff {
            continue;
        }
        let delta = now.wrapping_sub(stamp);
        let shift = (scale >> 32) as u8 as i8;
        let delta = if shift < 0 { delta >> -shift } else { delta << shift };
        let flags = scale >> 40 & 0xff;
        return (base + ((u128::from(delta) * u128::from(scale & 0xffff_ffff)) >> 32) as u64, flags);
    }
}

fn clock() -> Outcome {
    need!(feature::CLOCK, "the clock");
    cpu::write_msr(msr::SYSTEM_TIME, CLOCK.0.as_ptr() as u64 | 1);
    check_eq!(cpu::read_msr(msr::SYSTEM_TIME), CLOCK.0.as_ptr() as u64 | 1, "the MSR");
    let start = timer::now();
    let (first, flags) = nanoseconds(&CLOCK, start);
    timer::wait(10_000, || false);
    let end = timer::now();
    let (second, _) = nanoseconds(&CLOCK, end);
    cpu::write_msr(msr::SYSTEM_TIME, 0);
    check!(flags & 1 == u64::from(kvm::has(feature::CLOCK_STABLE)), "the flags are {flags:#x}");
    let (gone, expected) = ((second - first) / 1000, timer::microseconds(end - start));
    check!(gone.abs_diff(expected) < 100, "{gone} microseconds instead of {expected}");
    Ok(())
}

/// A record that was given back stays as it is.
fn clock_off() -> Outcome {
    need!(feature::CLOCK, "the clock");
    cpu::write_msr(msr::SYSTEM_TIME, CLOCK.0.as_ptr() as u64 | 1);
    cpu::write_msr(msr::SYSTEM_TIME, 0);
    CLOCK.0.iter().for_each(|word| word.store(0x5a5a, SeqCst));
    timer::wait(5000, || false);
    cpu::cpuid(0, 0);
    check!(CLOCK.0.iter().all(|word| word.load(SeqCst) == 0x5a5a), "the record was written");
    Ok(())
}

fn wall_clock() -> Outcome {
    need!(feature::CLOCK, "the clock");
    cpu::write_msr(msr::WALL_CLOCK, WALL.0.as_ptr() as u64);
    let word = |index: u64| mmio::read32(WALL.0.as_ptr() as u64 + 4 * index);
    check!(word(0) & 1 == 0, "the version is odd");
    // After 2020, before 2100.
    check!((1_577_836_800..4_102_444_800).contains(&u64::from(word(1))), "{} seconds", word(1));
    check!(word(2) < 1_000_000_000, "{} nanoseconds", word(2));
    Ok(())
}

fn steal_time() -> Outcome {
    need!(feature::STEAL_TIME, "stolen time");
    STEAL.0.iter().for_each(|word| word.store(0, SeqCst));
    cpu::write_msr(msr::STEAL_TIME, STEAL.0.as_ptr() as u64 | 1);
    let steal = || (mmio::read64(STEAL.0.as_ptr() as u64), mmio::read32(STEAL.0.as_ptr() as u64 + 8));
    let (first, version) = steal();
    check!(version & 1 == 0, "the version is odd");
    timer::wait(10_000, || false);
    let (second, _) = steal();
    cpu::write_msr(msr::STEAL_TIME, 0);
    check!(second >= first && second - first < 1_000_000_000, "{first} nanoseconds, then {second}");
    Ok(())
}

fn take(_: u64) {
    while !others::are_to_stop() {
        cpu::wait();
    }
}

fn send_ipi() -> Outcome {
    need!(feature::SEND_IPI, "sending by hypercall");
    others::start(take, 0)?;
    // All but this CPU by the low word, as identifiers from the smallest on.
    let smallest = (0..smp::count()).map(smp::apic_id).min().unwrap_or(0);
    let bits = smp::others().fold(0_u128, |bits, index| bits | 1 << (smp::apic_id(index) - smallest));
    let sent = kvm::hypercall(call::SEND_IPI, [bits as u64, (bits >> 64) as u64, u64::from(smallest), 0x61]);
    check_eq!(sent, smp::count() as u64 - 1, "the answer");
    for index in smp::others() {
        check!(timer::wait(1_000_000, || irq::count_on(index, 0x61) == 1), "CPU {index} took none");
    }
    // The same CPU from another smallest one, and one that does not exist.
    let last = smp::apic_id(smp::count() - 1);
    let sent = kvm::hypercall(call::SEND_IPI, [3, 0, u64::from(last), 0x62]);
    check_eq!(sent, 1, "the answer for one that is there and one that is not");
    check!(timer::wait(1_000_000, || irq::count_on(smp::count() - 1, 0x62) == 1), "it took none");
    check_eq!(irq::count(0x61), 0, "this CPU took");
    others::stop()
}

fn kick() -> Outcome {
    need!(feature::UNHALT, "the kick");
    static WOKEN: AtomicU64 = AtomicU64::new(0);
    fn sleep(_: u64) {
        while !others::are_to_stop() {
            cpu::halt_masked();
            WOKEN.fetch_add(1, SeqCst);
        }
    }
    if smp::count() == 1 {
        skip!("one CPU");
    }
    others::set_stop(false);
    WOKEN.store(0, SeqCst);
    check!(smp::start(1, sleep, 0), "CPU 1 does not start");
    for round in 1..=5 {
        timer::wait(1000, || false);
        check_eq!(kvm::hypercall(call::KICK_CPU, [0, u64::from(smp::apic_id(1)), 0, 0]), 0, "the answer");
        check!(timer::wait(1_000_000, || WOKEN.load(SeqCst) >= round), "kick {round} does not wake");
    }
    others::set_stop(true);
    kvm::hypercall(call::KICK_CPU, [0, u64::from(smp::apic_id(1)), 0, 0]);
    check!(smp::wait_done(1), "CPU 1 does not stop");
    Ok(())
}

fn poll_control() -> Outcome {
    need!(feature::POLL_CONTROL, "polling");
    check_eq!(cpu::read_msr(msr::POLL_CONTROL), 1, "the MSR at first");
    cpu::write_msr(msr::POLL_CONTROL, 0);
    check_eq!(cpu::read_msr(msr::POLL_CONTROL), 0, "the MSR");
    cpu::write_msr(msr::POLL_CONTROL, 1);
    let trap = trap::caught(|| cpu::write_msr(msr::POLL_CONTROL, 2));
    check!(trap.is_some_and(|trap| trap.vector == vector::GP), "it takes reserved bits");
    Ok(())
}

/// Bits that must be zero.
fn reserved() -> Outcome {
    if kvm::base().is_none() {
        skip!("no KVM signature");
    }
    let is_gp = |number, value| {
        trap::caught(|| cpu::write_msr(number, value)).is_some_and(|trap| trap.vector == vector::GP)
    };
    if kvm::has(feature::STEAL_TIME) {
        check!(is_gp(msr::STEAL_TIME, 0x3f), "stolen time takes reserved bits");
        cpu::write_msr(msr::STEAL_TIME, 0);
    }
    if kvm::has(feature::EOI) {
        check!(is_gp(msr::PV_EOI, 3), "paravirtual EOI takes an address that is not aligned");
        cpu::write_msr(msr::PV_EOI, 0);
    }
    Ok(())
}
