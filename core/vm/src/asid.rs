// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Address space identifiers (AMD APM vol. 2, 15.16): by which a physical CPU tells the translations of its vCPUs apart.
//!
//! Each CPU has a [`Pool`] of its own, and each vCPU a [`Tag`], which says what it has been given where. A vCPU that comes
//! back to its CPU finds its translations, unless there are more vCPUs than identifiers. To forget a vCPU's translations is to
//! give it an identifier that nobody has had ([`Pool::renew`]): only when there are no more of those has the CPU to flush.
//!
//! A vCPU that moves gets a new identifier even where it has been before: what it invalidated meanwhile, it invalidated
//! elsewhere.

/// The identifiers of a CPU that are used, at most: more vCPUs than these take turns on it rarely, and a pool is small.
pub const MOST: usize = 64;

/// No pool.
const NOWHERE: u32 = u32::MAX;

/// What a vCPU has been given.
#[derive(Clone, Copy, Debug)]
pub struct Tag {
    pool: u32,
    asid: u32,
    serial: u64,
}

impl Default for Tag {
    fn default() -> Self {
        Self { pool: NOWHERE, asid: 0, serial: 0 }
    }
}

impl Tag {
    /// Returns the identifier.
    #[inline] // One load.
    pub const fn asid(&self) -> u32 {
        self.asid
    }
}

/// What to flush before the vCPU runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "translations of somebody else may be left"]
pub enum Flush {
    /// Nothing.
    Nothing,
    /// The translations of the vCPU's identifier.
    Own,
    /// All translations of guests on this CPU.
    Everything,
}

/// The identifiers of a physical CPU, `N` at most, from 1 on; 0 is the host's.
#[derive(Debug)]
pub struct Pool<const N: usize = MOST> {
    number: u32,
    /// Which vCPU has each, by the serial in its tag.
    given: [u64; N],
    /// How many there are.
    size: usize,
    /// How many of them have been given since the last flush of everything.
    used: usize,
    /// The one that is taken away next.
    victim: usize,
    serial: u64,
    /// Whether the CPU can flush one identifier.
    by_asid: bool,
}

impl<const N: usize> Pool<N> {
    /// Makes the pool of CPU `number`, whose hardware has `count` identifiers, the host's included, and can flush one of
    /// them, or not. Pools of different CPUs have different numbers.
    pub const fn new(number: u32, count: u32, by_asid: bool) -> Self {
        let size = if count as usize > N { N } else { count.saturating_sub(1) as usize };
        Self { number, given: [0; N], size, used: 0, victim: 0, serial: 0, by_asid }
    }

    /// How many identifiers it has.
    pub const fn size(&self) -> u32 {
        self.size as u32
    }

    /// Says whether what a tag was given is valid here: who becomes resident without that has to [renew](Pool::renew) it.
    #[inline] // A few instructions of each switch.
    pub fn has(&self, tag: &Tag) -> bool {
        // Of a tag that any pool has given something, the remainder is the index.
        tag.pool == self.number && self.given[(tag.asid as usize).wrapping_sub(1) % N] == tag.serial
    }

    /// Lets a vCPU that is resident here, or becomes so, begin without translations.
    pub fn renew(&mut self, tag: &mut Tag) -> Flush {
        let (index, flush) = if self.used < self.size {
            self.used += 1;
            (self.used - 1, Flush::Nothing)
        } else if !self.by_asid || self.size == 0 {
            // What was given is taken from everybody.
            self.given = [0; N];
            self.used = 1;
            (0, Flush::Everything)
        } else if self.has(tag) {
            (tag.asid as usize - 1, Flush::Own)
        } else {
            let victim = self.victim;
            self.victim = (victim + 1) % self.size;
            (victim, Flush::Own)
        };
        self.serial += 1;
        // The remainder is the index: services get here on light exits, from which no panic may be reached.
        self.given[index % N] = self.serial;
        *tag = Tag { pool: self.number, asid: index as u32 + 1, serial: self.serial };
        flush
    }
}
