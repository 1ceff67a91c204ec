// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Says what share of its physical CPUs each of its CPUs got between two moments: the time that was not stolen from it
//! (KVM's record of stolen time). It never waits, never exits, and takes no interrupts.
//!
//! Options: `from=` and `until=`, microseconds on KVM's clock or, where there is none, since the time-stamp counter was
//! zero (200000 and 500000); from the start on if `from=0`.
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicU64, Ordering};

use turnstile_guests_x86_64::platform::MAX_CPUS;
use turnstile_guests_x86_64::{apic, cpu, entry, kvm, mmio, options, println, smp, timer};

entry!(main);

#[repr(align(64))]
struct Record([AtomicU64; 8]);

static RECORDS: [Record; MAX_CPUS] = [const { Record([const { AtomicU64::new(0) }; 8]) }; MAX_CPUS];
/// CPUs that have finished.
static FINISHED: AtomicU64 = AtomicU64::new(0);
static RAN: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];

fn main() {
    apic::init();
    timer::frequency();
    for index in smp::others() {
        if !smp::start(index, spin, 0) {
            println!("@error CPU {index} does not start");
            return;
        }
    }
    spin(0);
    let all = smp::count() as u64;
    // The others may be behind by as long as they have waited for their turn.
    while FINISHED.load(Ordering::Acquire) != all {
        cpu::relax();
    }
    for (index, ran) in RAN.iter().enumerate().take(smp::count()) {
        println!("@share cpu={index} ran={}", ran.load(Ordering::Relaxed));
    }
    println!("@done");
}

fn spin(_: u64) {
    let at = |option, default| timer::ticks(options::number(option, default));
    let (from, until) = (at("from", 200_000), at("until", 500_000));
    let this = cpu::this().index();
    let record = RECORDS[this].0.as_ptr() as u64;
    if kvm::has(kvm::feature::STEAL_TIME) {
        cpu::write_msr(kvm::msr::STEAL_TIME, record | 1);
    }
    if from != 0 && timer::now() >= from {
        println!("@late cpu={this}");
    }
    while timer::now() < from {}
    let (began, before) = (timer::now(), mmio::read64(record));
    while timer::now() < until {}
    let microseconds = timer::microseconds(timer::now() - began);
    let ran = microseconds.saturating_sub((mmio::read64(record) - before) / 1000);
    RAN[this].store(ran, Ordering::Relaxed);
    FINISHED.fetch_add(1, Ordering::Release);
}
