// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes lines to a virtio console, and measures: see `turnstile_guests_common::terminal`.
#![no_std]
#![no_main]

use turnstile_guests::console::Console;
use turnstile_guests::{entry, pci};
use turnstile_guests_common::stack::Stack;
use turnstile_guests_common::terminal;

entry!(main);

/// What the console reads and writes.
static MEMORY: Stack<{ terminal::MEMORY as usize }> = Stack::new();

fn main() {
    if let Some(machine) = pci::begin(MEMORY.bottom()) {
        terminal::run(&mut Console, &machine);
    }
}
