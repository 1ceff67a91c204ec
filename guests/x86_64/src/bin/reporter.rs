// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Gives memory back by a virtio balloon, and measures: see `turnstile_guests_common::reporter`.
#![no_std]
#![no_main]

use turnstile_guests_common::reporter;
use turnstile_guests_common::stack::Stack;
use turnstile_guests_x86_64::console::Console;
use turnstile_guests_x86_64::{entry, pci};

entry!(main);

/// What the balloon reads and writes.
static MEMORY: Stack<{ reporter::MEMORY as usize }> = Stack::new();

fn main() {
    reporter::run(&mut Console, &pci::begin(MEMORY.bottom()));
}
