// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Says what share of its physical CPUs each of its CPUs got between two moments: the time that was not stolen from it
//! (KVM's record of stolen time). It never waits, never exits, and takes no interrupts.
//!
//! Options: `from=` and `until=`, microseconds on KVM's clock or, where there is none, since the time-stamp counter was
//! zero (200000 and 500000); from the start on if `from=0`.
#![no_std]
#![no_main]

use core::sync::atomic::AtomicU64;

use turnstile_guests_common::share::{self, Shares};
use turnstile_guests_x86_64::console::Console;
use turnstile_guests_x86_64::platform::{MAX_CPUS, platform};
use turnstile_guests_x86_64::{apic, cpu, entry, kvm, mmio, smp, timer};

entry!(main);

#[repr(align(64))]
struct Record([AtomicU64; 8]);

static RECORDS: [Record; MAX_CPUS] = [const { Record([const { AtomicU64::new(0) }; 8]) }; MAX_CPUS];
static SHARES: Shares<MAX_CPUS> = Shares::new();

fn main() {
    apic::init();
    timer::frequency();
    if !smp::start_others(spin) {
        return;
    }
    spin(0);
    SHARES.report(&mut Console, smp::count(), cpu::relax);
}

fn spin(_: u64) {
    let this = cpu::this().index();
    let record = RECORDS[this].0.as_ptr() as u64;
    if kvm::has(kvm::feature::STEAL_TIME) {
        cpu::write_msr(kvm::msr::STEAL_TIME, record | 1);
    }
    let moments = share::wait_for_begin(&mut Console, platform().command_line(), &timer::clock(), 0, this);
    let (began, before) = (timer::now(), mmio::read64(record));
    while timer::now() < moments.end {}
    let microseconds = timer::microseconds(timer::now() - began);
    SHARES.enter(this, microseconds.saturating_sub((mmio::read64(record) - before) / 1000));
}
