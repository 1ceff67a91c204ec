// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures the first write to memory that the hypervisor maps when it is touched. Options: `order=` bytes from one write to
//! the next (2 MiB); those of measuring guests.
#![no_std]
#![no_main]

use core::cell::Cell;

use turnstile_guests::platform::platform;
use turnstile_guests::{bench, boot, entry, measured_loop, options, println};

entry!(main);

/// What hypervisors map at once, if they can.
const BLOCK: u64 = 2 << 20;
/// Memory is taken from here on, counted from its start: what lies below has been written when the guest was loaded.
const FIRST: u64 = 16 << 20;

fn main() {
    let step = options::number("order", BLOCK).max(8);
    let ram = platform().ram();
    let start = (ram.base + FIRST).max(boot::image().1).next_multiple_of(step);
    let room = ram.end().saturating_sub(start) / step;
    let warm_up = options::number("warm-up", 256).max(1);
    let needed = warm_up + options::number("iterations", 1 << 20);
    if options::get("batches").is_some() || room < needed {
        println!("@error there is memory for {room} touches, and {needed} are wanted, without batches");
        return;
    }
    let next = Cell::new(start);
    bench::measure(
        "first-touch",
        |n| {
            measured_loop!(n, ["str x0, [{a}]", "add {a}, {a}, {s}"],
                a = inout(reg) next.get() => _, s = in(reg) step, in("x0") 0_u64,);
            next.set(next.get() + n * step);
        },
        |n| measured_loop!(n, ["nop", "add {a}, {a}, {s}"], a = inout(reg) 0_u64 => _, s = in(reg) step, in("x0") 0_u64,),
    );
}
