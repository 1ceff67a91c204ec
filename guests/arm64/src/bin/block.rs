// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Drives a disk that is a PCI function, and attacks it, or measures: see `turnstile_guests_common::disk`. Its messages come by a GICv2m frame.
#![no_std]
#![no_main]

use turnstile_guests::console::Console;
use turnstile_guests::{entry, pci, psci};
use turnstile_guests_common::disk;
use turnstile_guests_common::stack::Stack;

entry!(main);

/// What the disk reads and writes.
static MEMORY: Stack<{ disk::MEMORY as usize }> = Stack::new();

fn main() {
    if let Some(machine) = pci::begin(MEMORY.bottom())
        && disk::run(&mut Console, &machine)
    {
        psci::system_reset();
    }
}
