// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Drives a disk that is a PCI function, and attacks it, or measures: see `turnstile_guests_common::disk`.
#![no_std]
#![no_main]

use turnstile_guests_common::disk;
use turnstile_guests_common::stack::Stack;
use turnstile_guests_x86_64::console::Console;
use turnstile_guests_x86_64::{entry, pci, power};

entry!(main);

/// What the disk reads and writes.
static MEMORY: Stack<{ disk::MEMORY as usize }> = Stack::new();

fn main() {
    if disk::run(&mut Console, &pci::begin(MEMORY.bottom())) {
        power::reset();
    }
}
