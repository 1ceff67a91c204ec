// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The first write to a page of memory.

use turnstile_guests_power64::platform::platform;
use turnstile_guests_power64::{bench, boot, measured_loop, options, println};

const PAGE: u64 = 4096;
/// Pages are taken from here on: what lies below, a hypervisor has touched itself when it loaded the guest.
const FIRST: u64 = 16 << 20;

/// Writes to page after page; each is written to once. Options: `order=` bytes from one page to the next (4096), for
/// hypervisors that map larger ones.
pub fn measure() {
    let step = options::number("order", PAGE).max(PAGE);
    let start = FIRST.max(boot::image().1).next_multiple_of(step);
    let end = platform().memory.as_slice().iter().map(|region| region.end()).find(|end| *end > start);
    let pages = (end.unwrap_or(start) - start) / step;
    let warm_up = options::number("warm-up", 256).max(1);
    let iterations = options::number("iterations", 1 << 20);
    if options::get("batches").is_some() || pages < warm_up + iterations {
        println!(
            "@error there are {pages} pages, and warm-up and iterations need {}, without batches",
            warm_up + iterations
        );
        return;
    }
    let next = core::cell::Cell::new(start);
    bench::measure(
        "first-touch",
        |n| {
            measured_loop!(n, ["std 27, 0(27)", "add 27, 27, 26"], inout("r27") next.get() => _, in("r26") step,);
            next.set(next.get() + n * step);
        },
        |n| measured_loop!(n, ["nop", "add 27, 27, 26"], inout("r27") 0_u64 => _, in("r26") step,),
    );
}
