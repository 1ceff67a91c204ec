// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The first write to a page of memory.

use turnstile_guests_common::touch;
use turnstile_guests_x86_64::measured_loop;
use turnstile_guests_x86_64::platform::platform;

/// Writes to page after page; each is written to once.
pub fn measure() {
    touch::measure(
        platform().memory.as_slice(),
        touch::PAGE,
        |n, start, step| measured_loop!(n, ["mov [r13], r13", "add r13, r14"], inout("r13") start => _, in("r14") step,),
        |n, start, step| measured_loop!(n, ["nop", "add r13, r14"], inout("r13") start => _, in("r14") step,),
    );
}
