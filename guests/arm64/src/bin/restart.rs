// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks that all memory outside image and device tree is zero, fills it with a pattern, and resets, for
//! ever: what a hypervisor leaves behind in a restarted machine's memory is found.
//!
//! `check=off` leaves the check out, for machines that keep their memory over a reset.
#![no_std]
#![no_main]

use turnstile_guests::console::Console;
use turnstile_guests::platform::platform;
use turnstile_guests::{entry, mmio, options, psci};
use turnstile_guests_common::restart::{self, PAGE};

entry!(main);

fn main() {
    let pages = || platform().free_blocks(PAGE);
    if !restart::check(&mut Console, options::line(), pages(), mmio::read64) {
        return;
    }
    pages().for_each(|page| restart::fill(page, mmio::write64));
    psci::system_reset();
}
