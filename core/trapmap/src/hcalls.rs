// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The dense table of POWER's hypervisor calls: their numbers are multiples of four (LoPAPR 14.5.1).

/// Maps the numbers below `4 * N` to handlers; everything not given maps to the default.
#[derive(Debug)]
pub struct HcallMap<H: Copy + 'static, const N: usize> {
    default: H,
    handlers: [H; N],
}

impl<H: Copy, const N: usize> HcallMap<H, N> {
    /// Builds the map. Numbers that are too large for it are left out.
    ///
    /// # Panics
    /// If a number is no multiple of four; in a `static`, that does not compile.
    pub const fn new(default: H, entries: &[(u64, H)]) -> Self {
        let mut handlers = [default; N];
        let mut next = 0;
        while next < entries.len() {
            let (number, handler) = entries[next];
            assert!(number % 4 == 0, "numbers are multiples of four");
            if number / 4 < N as u64 {
                handlers[(number / 4) as usize] = handler;
            }
            next += 1;
        }
        Self { default, handlers }
    }

    /// Looks up the handler for a number. HOT: a rotation, a comparison, a load.
    #[inline(always)] // The table is a constant address where the map is a `static`.
    pub const fn lookup(&self, number: u64) -> H {
        // A number that is no multiple of four becomes a very large one.
        let index = number.rotate_right(2);
        if index < N as u64 { self.handlers[index as usize] } else { self.default }
    }
}
