// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The first write to a page of memory.

use turnstile_guests_common::touch;
use turnstile_guests_power64::measured_loop;
use turnstile_guests_power64::platform::platform;

/// Writes to page after page; each is written to once.
pub fn measure() {
    touch::measure(
        platform().memory.as_slice(),
        touch::PAGE,
        |n, start, step| measured_loop!(n, ["std 27, 0(27)", "add 27, 27, 26"], inout("r27") start => _, in("r26") step,),
        |n, start, step| measured_loop!(n, ["nop", "add 27, 27, 26"], inout("r27") start => _, in("r26") step,),
    );
}
