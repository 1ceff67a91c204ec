// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks that all memory above 1 MiB outside image and loader's information is zero, fills it with a pattern, and
//! resets, for ever: what a hypervisor leaves behind in a restarted machine's memory is found.
//!
//! `check=off` leaves the check out, for machines that keep their memory over a reset. `steal` leaves records of stolen time
//! switched on (KVM's), of each CPU one in the last page of the memory.
#![no_std]
#![no_main]

use turnstile_guests_x86_64::platform::{Region, platform};
use turnstile_guests_x86_64::{apic, boot, cpu, entry, kvm, options, power, println, smp};

entry!(main);

const PATTERN: u64 = 0xdead_5eed_0bad_c0de;
const PAGE: u64 = 4096;
/// What is below is the firmware's, or looks like it.
const FIRST: u64 = 1 << 20;
/// What is mapped.
const LAST: u64 = 4 << 30;

fn main() {
    let mut dirty = None;
    let mut bytes = 0;
    let checked = options::get("check") != Some("off");
    if checked {
        each_free_page(|page| {
            bytes += PAGE;
            if dirty.is_none() {
                dirty = first_not_zero(page);
            }
        });
    }
    if let Some((address, value)) = dirty {
        println!("@boot restart zero=no");
        println!("@error memory at {address:#x} holds {value:#x}");
        return;
    }
    println!("@boot restart zero={} bytes={bytes}", if checked { "yes" } else { "unchecked" });
    let mut last = 0;
    each_free_page(|page| {
        fill(page);
        last = page;
    });
    if options::get("steal").is_some() {
        switch_on(last);
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

/// Calls `f` with each whole page of memory that holds neither image nor what the loader told.
fn each_free_page(mut f: impl FnMut(u64)) {
    let (start, end) = boot::image();
    let image = Region { base: start, size: end - start };
    let taken = || platform().loader.as_slice().iter().chain([&image]);
    for memory in platform().memory.as_slice() {
        let mut page = memory.base.max(FIRST);
        while page + PAGE <= memory.end().min(LAST) {
            match taken().find(|region| page < region.end() && region.base < page + PAGE) {
                Some(region) => page = region.end().next_multiple_of(PAGE),
                None => {
                    f(page);
                    page += PAGE;
                }
            }
        }
    }
}

fn first_not_zero(page: u64) -> Option<(u64, u64)> {
    (page..page + PAGE).step_by(8).find_map(|address| {
        // SAFETY: memory of the loader's map that holds nothing of this program.
        let value = unsafe { (address as *const u64).read_volatile() };
        (value != 0).then_some((address, value))
    })
}

fn fill(page: u64) {
    for address in (page..page + PAGE).step_by(8) {
        // SAFETY: memory of the loader's map that holds nothing of this program.
        unsafe { (address as *mut u64).write_volatile(PATTERN ^ address) };
    }
}
