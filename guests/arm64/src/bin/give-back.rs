// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Gives memory back by a virtio balloon, and measures: see `turnstile_guests_common::give_back`.
#![no_std]
#![no_main]

use turnstile_guests::console::Console;
use turnstile_guests::{entry, pci};
use turnstile_guests_common::give_back;
use turnstile_guests_common::stack::Stack;

entry!(main);

/// What the balloon of the VM reads and writes.
static MEMORY: Stack<{ give_back::MEMORY as usize }> = Stack::new();

fn main() {
    if let Some(machine) = pci::begin(MEMORY.bottom()) {
        give_back::run(&mut Console, &machine);
    }
}
