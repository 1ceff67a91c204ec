// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes lines to a virtio console, and measures: see `turnstile_guests_common::terminal`.
#![no_std]
#![no_main]

use turnstile_guests_common::stack::Stack;
use turnstile_guests_common::terminal;
use turnstile_guests_x86_64::console::Console;
use turnstile_guests_x86_64::{entry, pci};

entry!(main);

/// What the console reads and writes.
static MEMORY: Stack<{ terminal::MEMORY as usize }> = Stack::new();

fn main() {
    terminal::run(&mut Console, &pci::begin(MEMORY.bottom()));
}
