// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A perfect hash of 32-bit identifiers, found by the compiler: SMCCC function identifiers (DEN0028), and any
//! other sparse numbers.

/// How many multipliers are tried before the map is declared too small.
const ATTEMPTS: u32 = 4096;

/// Maps 32-bit identifiers to handlers; everything not given maps to the default.
///
/// An identifier has one slot it can be in. The multiplier that gives each its own slot is searched when the
/// map is built, which is at compile time for a `static`; then a lookup is a multiplication, a shift, a compare.
#[derive(Debug)]
pub struct CallMap<H: Copy + 'static, const SLOTS: usize> {
    multiplier: u32,
    default: H,
    slots: [(u32, H); SLOTS],
}

impl<H: Copy, const SLOTS: usize> CallMap<H, SLOTS> {
    /// Builds the map. `SLOTS` is a power of two, 2 to 4096; about eight times the number of entries is ample.
    ///
    /// # Panics
    /// If an identifier occurs twice or `SLOTS` is too small or no power of two; in a `static`, that does not
    /// compile.
    pub const fn new(default: H, entries: &[(u32, H)]) -> Self {
        assert!(SLOTS.is_power_of_two() && SLOTS >= 2 && SLOTS <= 4096, "SLOTS is a power of two, 2..=4096");
        let multiplier = Self::find_multiplier(entries);
        // An unclaimed slot matches identifier 0, with the default: the right answer.
        let mut slots = [(0, default); SLOTS];
        let mut next = 0;
        while next < entries.len() {
            slots[Self::slot(multiplier, entries[next].0)] = entries[next];
            next += 1;
        }
        Self { multiplier, default, slots }
    }

    /// Looks up the handler for an identifier. HOT.
    // Inlined: the multiplier is a constant where the map is a `static`.
    #[inline(always)]
    pub const fn lookup(&self, identifier: u32) -> H {
        let (found, handler) = self.slots[Self::slot(self.multiplier, identifier)];
        if found == identifier { handler } else { self.default }
    }

    /// Looks up the handler for an identifier that is one of those given. HOT. Identifier 0 may be found with the default.
    // Inlined, as above.
    #[inline(always)]
    pub const fn find(&self, identifier: u32) -> Option<H> {
        let (found, handler) = self.slots[Self::slot(self.multiplier, identifier)];
        if found == identifier { Some(handler) } else { None }
    }

    // Inlined: part of the lookup.
    #[inline(always)]
    const fn slot(multiplier: u32, identifier: u32) -> usize {
        // The highest bits of the product depend on all bits of the identifier. The mask only tells the
        // compiler what the shift has done, so that no bounds check remains.
        (identifier.wrapping_mul(multiplier) >> (32 - SLOTS.trailing_zeros())) as usize & (SLOTS - 1)
    }

    const fn find_multiplier(entries: &[(u32, H)]) -> u32 {
        let mut multiplier = 0x9e37_79b1;
        let mut attempt = 0;
        while attempt < ATTEMPTS {
            if Self::separates(multiplier, entries) {
                return multiplier;
            }
            // A linear congruential sequence; its values are made odd, so that no identifier's bits are lost.
            multiplier = multiplier.wrapping_mul(1_664_525).wrapping_add(1_013_904_223) | 1;
            attempt += 1;
        }
        panic!("an identifier occurs twice, or the map needs more slots")
    }

    const fn separates(multiplier: u32, entries: &[(u32, H)]) -> bool {
        let mut claimed = [0u64; 64];
        let mut next = 0;
        while next < entries.len() {
            let slot = Self::slot(multiplier, entries[next].0);
            if claimed[slot / 64] >> (slot % 64) & 1 != 0 {
                return false;
            }
            claimed[slot / 64] |= 1 << (slot % 64);
            next += 1;
        }
        true
    }
}
