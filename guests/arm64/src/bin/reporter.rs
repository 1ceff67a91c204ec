// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Gives memory back by a virtio balloon, and measures: see `turnstile_guests_common::reporter`.
#![no_std]
#![no_main]

use turnstile_guests::console::Console;
use turnstile_guests::{entry, pci};
use turnstile_guests_common::reporter;
use turnstile_guests_common::stack::Stack;

entry!(main);

/// What the balloon reads and writes.
static MEMORY: Stack<{ reporter::MEMORY as usize }> = Stack::new();

fn main() {
    if let Some(machine) = pci::begin(MEMORY.bottom()) {
        reporter::run(&mut Console, &machine);
    }
}
