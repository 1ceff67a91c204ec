// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a guest reaches of a function.

use turnstile_service_rt::{BARS, CONFIGURATION};

/// Bytes of a function's configuration space.
const SPACE: u64 = 0x1000;

/// Where the BARs of a function are decoded, and how large they are.
pub type Bars = [Option<(u64, u64)>; 6];

/// Returns the device, as events have it, at an address, and the offset in it: the configuration space is at `ecam`.
pub fn find(ecam: u64, bars: &Bars, address: u64) -> Option<(u64, u64)> {
    if (ecam..ecam + SPACE).contains(&address) {
        return Some((CONFIGURATION, address - ecam));
    }
    let mut all = (BARS..).zip(bars).filter_map(|(device, bar)| Some((device, (*bar)?)));
    all.find_map(|(device, (base, size))| {
        (base..base + size).contains(&address).then(|| (device, address - base))
    })
}
