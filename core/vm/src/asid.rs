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

/// The identifiers of a physical CPU, from 1 on; 0 is the host's.
#[derive(Debug)]
pub struct Pool {
    number: u32,
    /// Which vCPU has each, by the serial in its tag.
    given: [u64; MOST],
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

impl Pool {
    /// Makes the pool of CPU `number`, whose hardware has `count` identifiers, the host's included, and can flush one of
    /// them, or not. Pools of different CPUs have different numbers.
    pub const fn new(number: u32, count: u32, by_asid: bool) -> Self {
        let size = if count as usize > MOST { MOST } else { count.saturating_sub(1) as usize };
        Self { number, given: [0; MOST], size, used: 0, victim: 0, serial: 0, by_asid }
    }

    /// Says whether a tag is valid here.
    #[inline] // A few instructions of each switch.
    fn has(&self, tag: &Tag) -> bool {
        tag.pool == self.number
            && self.given.get((tag.asid as usize).wrapping_sub(1)).is_some_and(|given| *given == tag.serial)
    }

    /// Gives a vCPU that becomes resident here an identifier, unless it has one. Returns what to flush then.
    #[inline] // Of each switch.
    pub fn assign(&mut self, tag: &mut Tag) -> Option<Flush> {
        if self.has(tag) { None } else { Some(self.renew(tag)) }
    }

    /// Lets a vCPU that is resident here, or becomes so, begin without translations.
    pub fn renew(&mut self, tag: &mut Tag) -> Flush {
        let (index, flush) = if self.used < self.size {
            self.used += 1;
            (self.used - 1, Flush::Nothing)
        } else if !self.by_asid || self.size == 0 {
            // What was given is taken from everybody.
            self.given = [0; MOST];
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
        self.given[index] = self.serial;
        *tag = Tag { pool: self.number, asid: index as u32 + 1, serial: self.serial };
        flush
    }
}
