// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sends packets to another VM, and measures or attacks: see `turnstile_guests_common::network`.
#![no_std]
#![no_main]

use turnstile_guests_common::network;
use turnstile_guests_common::stack::Stack;
use turnstile_guests_x86_64::console::Console;
use turnstile_guests_x86_64::{entry, pci, power};

entry!(main);

/// What the device reads and writes.
static MEMORY: Stack<0x9_0000> = Stack::new();

fn main() {
    if network::run(&mut Console, &pci::begin(MEMORY.bottom())) {
        power::reset();
    }
}
