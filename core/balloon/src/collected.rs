// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pages that a driver has given one by one, until whole blocks are together: memory goes by blocks.

/// How many bytes a page has, whatever the guest's pages are.
pub const PAGE: u64 = 4096;
/// How many bytes a block has.
pub const BLOCK: u64 = 2 << 20;
/// How many pages it has.
const PAGES: u64 = BLOCK / PAGE;
/// Words with a bit for each of them.
const WORDS: usize = (PAGES / 64) as usize;

/// The pages that a driver has given, by the block that they are in.
///
/// A block has one of `PLACES`, by its number. One that comes to the place of another has it, and what was given of the other one is forgotten:
/// that stays with the guest, which is no harm. Of blocks that are all within `PLACES` of each other none is forgotten.
#[derive(Debug)]
pub struct Collected<const PLACES: usize>([Place; PLACES]);

/// The pages of a block. Filled with zeros where there are none, as memory is where a program begins.
#[derive(Clone, Copy, Debug)]
struct Place {
    number: u64,
    /// A bit for each page that was given.
    pages: [u64; WORDS],
}

/// A piece of one block: the block's number, and pages in it.
type Piece = (u64, core::ops::Range<u64>);

/// Returns the pieces of `length` bytes from `address` on, which are whole pages.
fn pieces(address: u64, length: u64) -> impl Iterator<Item = Piece> {
    let (mut next, end) = (address / PAGE, address.saturating_add(length) / PAGE);
    core::iter::from_fn(move || {
        let (first, number) = (next, next / PAGES);
        next = ((number + 1) * PAGES).min(end);
        (first < end).then(|| (number, first - number * PAGES..next - number * PAGES))
    })
}

impl Place {
    const EMPTY: Self = Self { number: 0, pages: [0; WORDS] };

    /// Has these pages be given, or not.
    fn set(&mut self, pages: core::ops::Range<u64>, given: bool) {
        for page in pages {
            if let Some(word) = self.pages.get_mut((page / 64) as usize) {
                let bit = 1 << (page % 64);
                *word = if given { *word | bit } else { *word & !bit };
            }
        }
    }
}

impl<const PLACES: usize> Default for Collected<PLACES> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const PLACES: usize> Collected<PLACES> {
    /// Begins with no page.
    pub const fn new() -> Self {
        Self([Place::EMPTY; PLACES])
    }

    fn place(&mut self, number: u64) -> Option<&mut Place> {
        self.0.get_mut((number % PLACES as u64) as usize)
    }

    /// The driver has given these bytes, which are whole pages. Each block of which it has given all by now is handed to `whole`, by its address;
    /// again, if it was whole before.
    pub fn give(&mut self, address: u64, length: u64, mut whole: impl FnMut(u64)) {
        for (number, pages) in pieces(address, length) {
            let Some(place) = self.place(number) else { return };
            if place.number != number {
                *place = Place { number, ..Place::EMPTY };
            }
            place.set(pages, true);
            if place.pages == [u64::MAX; WORDS] {
                whole(number * BLOCK);
            }
        }
    }

    /// The driver uses these bytes again.
    pub fn take_back(&mut self, address: u64, length: u64) {
        for (number, pages) in pieces(address, length) {
            let place = self.place(number).filter(|place| place.number == number);
            place.into_iter().for_each(|place| place.set(pages.clone(), false));
        }
    }

    /// The driver has forgotten what it has given.
    pub fn clear(&mut self) {
        self.0.fill(Place::EMPTY);
    }
}
