// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The direct-mapped table of system registers.

use crate::SysReg;

/// A block of encodings that share a handler, where none of them has one of its own.
///
/// For the spaces in which the architecture says something of whole ranges: the ID registers not yet allocated
/// read as zero, the event counters are numbered by CRm and op2.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// op0, op1 and CRn, the same for all.
    pub op0: u8,
    /// See `op0`.
    pub op1: u8,
    /// See `op0`.
    pub crn: u8,
    /// The first and the last CRm.
    pub crm: (u8, u8),
    /// The first and the last op2.
    pub op2: (u8, u8),
}

impl Group {
    /// Returns the encoding at a place of the block, counted along op2, then CRm; `None` behind the last one.
    pub(crate) const fn at(&self, place: u8) -> Option<SysReg> {
        let width = self.op2.1 - self.op2.0 + 1;
        let crm = self.crm.0 + place / width;
        if crm > self.crm.1 {
            return None;
        }
        Some(SysReg::new(self.op0, self.op1, self.crn, crm, self.op2.0 + place % width))
    }
}

/// Maps each of the 2^15 keys of a system register to a handler.
///
/// 32 KiB with handlers of one byte, of which a guest's traps touch a few cache lines. Build it in a `static`.
#[derive(Debug)]
pub struct TrapMap<H: Copy + 'static> {
    handlers: [H; SysReg::KEYS],
}

impl<H: Copy> TrapMap<H> {
    /// Builds the map: the handlers given, and `default` for all other encodings.
    ///
    /// # Panics
    /// If two entries have the same key; in a `static`, that does not compile.
    pub const fn new(default: H, entries: &[(SysReg, H)]) -> Self {
        Self::with_groups(default, &[], entries)
    }

    /// Builds the map: `groups` first, later ones over earlier ones, then `entries` over all of them.
    ///
    /// # Panics
    /// If two of `entries` have the same key; in a `static`, that does not compile.
    pub const fn with_groups(default: H, groups: &[(Group, H)], entries: &[(SysReg, H)]) -> Self {
        let mut handlers = [default; SysReg::KEYS];
        let mut next = 0;
        while next < groups.len() {
            fill(&mut handlers, &groups[next].0, groups[next].1);
            next += 1;
        }
        let mut claimed = [0u64; SysReg::KEYS / 64];
        let mut next = 0;
        while next < entries.len() {
            let key = entries[next].0.key();
            assert!(claimed[key / 64] >> (key % 64) & 1 == 0, "two handlers for one encoding");
            claimed[key / 64] |= 1 << (key % 64);
            handlers[key] = entries[next].1;
            next += 1;
        }
        Self { handlers }
    }

    /// Looks up the handler for the ISS of an exception of class 0x18. HOT: masks and one load; the mask bounds
    /// the index, so that no check remains.
    // Inlined: a call would cost more than the lookup.
    #[inline(always)]
    pub const fn lookup(&self, iss: u32) -> H {
        self.handlers[SysReg::key_of_iss(iss)]
    }

    /// Returns the handler of a register.
    pub const fn get(&self, register: SysReg) -> H {
        self.handlers[register.key()]
    }
}

const fn fill<H: Copy>(handlers: &mut [H; SysReg::KEYS], group: &Group, handler: H) {
    let mut place = 0;
    while let Some(register) = group.at(place) {
        handlers[register.key()] = handler;
        place += 1;
    }
}
