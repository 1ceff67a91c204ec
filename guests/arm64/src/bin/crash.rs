// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Dies in the way that `how=` names (default: exception), at once or `after=` milliseconds; with `timers`, all timers of all
//! its CPUs are armed before, and the other CPUs spin or are off.
#![no_std]
#![no_main]

use turnstile_guests::{crash, entry, options, println, timer};

entry!(main);

fn main() {
    println!("@boot crash");
    if options::get("timers").is_some() && !crash::arm_timers() {
        return;
    }
    timer::delay(options::number("after", 0) * 1000);
    crash::die(options::get("how").unwrap_or("exception"));
}
