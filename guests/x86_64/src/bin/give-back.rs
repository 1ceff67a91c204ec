// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Gives memory back by a virtio balloon, and measures: see `turnstile_guests_common::give_back`.
#![no_std]
#![no_main]

use turnstile_guests_common::give_back;
use turnstile_guests_common::stack::Stack;
use turnstile_guests_x86_64::console::Console;
use turnstile_guests_x86_64::{entry, pci};

entry!(main);

/// What the balloon of the VM reads and writes.
static MEMORY: Stack<{ give_back::MEMORY as usize }> = Stack::new();

fn main() {
    give_back::run(&mut Console, &pci::begin(MEMORY.bottom()));
}
