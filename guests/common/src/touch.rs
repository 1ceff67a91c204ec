// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a measuring guest writes to memory for the first time.

use core::fmt::Write;

use crate::bench::{ITERATIONS, WARM_UP};
use crate::memory::Region;
use crate::options;

const PAGE: u64 = 4096;
/// Pages are taken from here on: what lies below, a hypervisor has touched itself when it loaded the guest.
const FIRST: u64 = 16 << 20;

/// Pages that nobody has written to.
#[derive(PartialEq, Eq, Debug)]
pub struct Pages {
    /// The first one.
    pub start: u64,
    /// Bytes from one to the next.
    pub step: u64,
}

/// Returns pages behind the image's end that suffice for warm-up and iterations, or prints why there are none. Options:
/// `order=` bytes from one page to the next (4096), for hypervisors that map larger ones; those of measuring guests.
pub fn pages(console: &mut impl Write, line: &str, memory: &[Region], image_end: u64) -> Option<Pages> {
    let step = options::number_in(line, "order", PAGE).max(PAGE);
    let start = FIRST.max(image_end).next_multiple_of(step);
    let end = memory.iter().map(Region::end).find(|end| *end > start);
    let pages = (end.unwrap_or(start) - start) / step;
    let needed = options::number_in(line, "warm-up", WARM_UP).max(1)
        + options::number_in(line, "iterations", ITERATIONS);
    if options::find(line, "batches").is_some() || pages < needed {
        let _ = writeln!(
            console,
            "@error there are {pages} pages, and warm-up and iterations need {needed}, without batches"
        );
        return None;
    }
    Some(Pages { start, step })
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::string::String;

    use super::*;

    #[test]
    fn pages_suffice_or_are_refused() {
        let memory = [Region { base: 0, size: 1 << 20 }, Region { base: 1 << 20, size: 31 << 20 }];
        let said = |line, image_end| {
            let mut text = String::new();
            let found = pages(&mut text, line, &memory, image_end);
            (found, text)
        };
        let found = |start, step| (Some(Pages { start, step }), String::new());
        assert_eq!(said("iterations=3840", 1), found(16 << 20, 4096));
        assert_eq!(said("iterations=1 warm-up=1 order=0x200000", 0x100_0001), found(18 << 20, 2 << 20));
        let why = "@error there are 4096 pages, and warm-up and iterations need 4097, without batches\n";
        assert_eq!(said("iterations=3841", 1), (None, why.into()));
        assert_eq!(said("iterations=1 batches", 1).0, None);
    }
}
