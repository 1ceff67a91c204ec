// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The first write to a page of memory.

use turnstile_guests_common::touch::{self, Pages};
use turnstile_guests_power64::console::Console;
use turnstile_guests_power64::platform::platform;
use turnstile_guests_power64::{bench, boot, measured_loop};

/// Writes to page after page; each is written to once. Options: `order=` bytes from one page to the next (4096), for
/// hypervisors that map larger ones.
pub fn measure() {
    let machine = platform();
    let pages =
        touch::pages(&mut Console, machine.command_line(), machine.memory.as_slice(), boot::image().1);
    let Some(Pages { start, step }) = pages else { return };
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
