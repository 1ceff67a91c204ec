// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures the first write to memory that the hypervisor maps when it is touched. Options: `order=` bytes from one write to
//! the next (2 MiB); those of measuring guests.
#![no_std]
#![no_main]

use turnstile_guests::platform::platform;
use turnstile_guests::{entry, measured_loop};
use turnstile_guests_common::touch;

entry!(main);

/// What hypervisors map at once, if they can.
const BLOCK: u64 = 2 << 20;

fn main() {
    touch::measure(
        platform().memory.as_slice(),
        BLOCK,
        |n, start, step| {
            measured_loop!(n, ["str x0, [{a}]", "add {a}, {a}, {s}"],
                a = inout(reg) start => _, s = in(reg) step, in("x0") 0_u64,)
        },
        |n, start, step| {
            measured_loop!(n, ["nop", "add {a}, {a}, {s}"],
                a = inout(reg) start => _, s = in(reg) step, in("x0") 0_u64,)
        },
    );
}
