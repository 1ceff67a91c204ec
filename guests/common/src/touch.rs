// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a measuring guest writes to memory for the first time.

use core::cell::Cell;
use core::fmt::Write;

use crate::bench::{self, ITERATIONS, WARM_UP};
use crate::console::Console;
use crate::image::image;
use crate::memory::Region;
use crate::options;

/// The least that is mapped at once.
pub const PAGE: u64 = 4096;
/// Pages are taken from here on, counted from the start of memory: what lies below, a hypervisor has touched itself when it
/// loaded the guest.
const FIRST: u64 = 16 << 20;

/// Pages that nobody has written to.
#[derive(PartialEq, Eq, Debug)]
struct Pages {
    /// The first one.
    start: u64,
    /// Bytes from one to the next.
    step: u64,
}

/// Measures the first write to pages behind the image: `touch` writes to so many pages from an address on, so many bytes apart;
/// `empty` does the same but for the write. Options: `order=` bytes from one page to the next (`order`, if it is not there), for
/// hypervisors that map larger ones; `from=` where to begin, in bytes from the start of memory; those of measuring guests.
// Inlined, so that only guests need the linker's names.
#[inline]
pub fn measure(memory: &[Region], order: u64, touch: impl Fn(u64, u64, u64), empty: impl Fn(u64, u64, u64)) {
    let found = pages(&mut Console, options::line(), memory, order, image().1);
    let Some(Pages { start, step }) = found else { return };
    let next = Cell::new(start);
    bench::measure(
        "first-touch",
        |count| touch(count, next.replace(next.get() + count * step), step),
        |count| empty(count, 0, step),
    );
}

/// Returns pages behind the image's end that suffice for warm-up and iterations, or prints why there are none.
fn pages(
    console: &mut impl Write,
    line: &str,
    memory: &[Region],
    order: u64,
    image_end: u64,
) -> Option<Pages> {
    let step = options::number_in(line, "order", order).max(PAGE);
    let first = memory.first().map_or(0, |region| region.base) + options::number_in(line, "from", FIRST);
    let start = first.max(image_end).next_multiple_of(step);
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
            let found = pages(&mut text, line, &memory, PAGE, image_end);
            (found, text)
        };
        let found = |start, step| (Some(Pages { start, step }), String::new());
        assert_eq!(said("iterations=3840", 1), found(16 << 20, 4096));
        assert_eq!(said("iterations=1 warm-up=1 order=0x200000", 0x100_0001), found(18 << 20, 2 << 20));
        let why = "@error there are 4096 pages, and warm-up and iterations need 4097, without batches\n";
        assert_eq!(said("iterations=3841", 1), (None, why.into()));
        assert_eq!(said("iterations=1 batches", 1).0, None);
        let high = [Region { base: 1 << 30, size: 32 << 20 }];
        let found = pages(&mut String::new(), "iterations=1 warm-up=1", &high, 2 << 20, 1);
        assert_eq!(found, Some(Pages { start: (1 << 30) + (16 << 20), step: 2 << 20 }));
    }
}
