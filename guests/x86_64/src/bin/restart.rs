// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks that all memory above 1 MiB outside image and loader's information is zero, fills it with a pattern, and
//! resets, for ever: what a hypervisor leaves behind in a restarted machine's memory is found.
//!
//! `check=off` leaves the check out, for machines that keep their memory over a reset. `steal` leaves records of stolen time
//! switched on (KVM's), of each CPU one in the last page of the memory.
#![no_std]
#![no_main]

use turnstile_guests_common::restart::{self, PAGE};
use turnstile_guests_x86_64::console::Console;
use turnstile_guests_x86_64::platform::platform;
use turnstile_guests_x86_64::{apic, cpu, entry, kvm, mmio, options, power, println, smp};

entry!(main);

/// What is below is the firmware's, or looks like it.
const FIRST: u64 = 1 << 20;

fn main() {
    let pages = || platform().free_blocks(FIRST, PAGE);
    if !restart::check(&mut Console, options::line(), pages(), mmio::read64) {
        return;
    }
    pages().for_each(|page| restart::fill(page, mmio::write64));
    if options::get("steal").is_some() {
        switch_on(pages().last().unwrap_or(FIRST));
    }
    power::reset();
}

/// Switches the records of stolen time of all CPUs on, in this page.
fn switch_on(page: u64) {
    fn own(place: u64) {
        cpu::write_msr(kvm::msr::STEAL_TIME, place | 1);
    }
    apic::init();
    for index in smp::others() {
        if !smp::start(index, own, page + 64 * index as u64) || !smp::wait_done(index) {
            println!("@error CPU {index} does not start");
        }
    }
    own(page);
}
