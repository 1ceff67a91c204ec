// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command buffer (section 2.4).

use turnstile_paging::{PhysAddr, Tables};

use super::platform::{Error, Platform};
use super::registers::{COMMAND_BASE, COMMAND_HEAD, COMMAND_TAIL, set64, wait};

/// Entries, as a logarithm: a page.
const BITS: u32 = 8;
const LENGTH_SHIFT: u32 = 56;
/// Bytes of an entry.
const ENTRY: u32 = 16;

/// What an IOMMU is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// INVALIDATE_DEVTAB_ENTRY.
    ForgetFunction(u16),
    /// INVALIDATE_IOMMU_PAGES: all of a domain, tables included.
    ForgetPages(u16),
    /// INVALIDATE_INTERRUPT_TABLE.
    ForgetMessages(u16),
    /// INVALIDATE_IOMMU_ALL.
    ForgetAll,
    /// COMPLETION_WAIT: this number is stored there when what is before it is done.
    Store(PhysAddr, u64),
}

impl Command {
    fn words(self) -> [u64; 2] {
        /// All addresses (S and PDE are the lowest bits).
        const ALL: u64 = 0x7fff_ffff_ffff_f003;
        match self {
            Self::Store(to, number) => [1 << 60 | to.0 | 1, number],
            Self::ForgetFunction(function) => [2 << 60 | u64::from(function), 0],
            Self::ForgetPages(domain) => [3 << 60 | u64::from(domain) << 32, ALL],
            Self::ForgetMessages(function) => [5 << 60 | u64::from(function), 0],
            Self::ForgetAll => [8 << 60, 0],
        }
    }
}

/// The command buffer of one IOMMU. All of what is in it is waited for, so it never fills up.
#[derive(Debug)]
pub(super) struct Commands {
    buffer: PhysAddr,
    /// Where the IOMMU stores what it is told to.
    done: PhysAddr,
    /// The offset of the next command.
    next: u32,
    /// The number that was stored last.
    number: u64,
}

impl Commands {
    /// Makes an empty one.
    pub fn new(tables: &mut impl Tables) -> Option<Self> {
        let buffer = tables.allocate(u64::from(ENTRY) << BITS)?;
        Some(Self { buffer, done: tables.allocate(4096)?, next: 0, number: 0 })
    }

    /// Tells the IOMMU where it is.
    pub fn set_up(&self, platform: &mut impl Platform, unit: usize) {
        set64(platform, unit, COMMAND_BASE, self.buffer.0 | u64::from(BITS) << LENGTH_SHIFT);
        set64(platform, unit, COMMAND_HEAD, 0);
        set64(platform, unit, COMMAND_TAIL, 0);
    }

    /// Has commands done: fewer than there is room for.
    pub fn issue(
        &mut self,
        platform: &mut impl Platform,
        unit: usize,
        commands: &[Command],
    ) -> Result<(), Error> {
        self.number += 1;
        let end = Command::Store(self.done, self.number);
        for command in commands.iter().copied().chain([end]) {
            for (word, value) in command.words().into_iter().enumerate() {
                platform.write(self.buffer, self.next as usize / 8 + word, value);
            }
            self.next = (self.next + ENTRY) % (ENTRY << BITS);
        }
        // Commands, and the tables that they are about, before the IOMMU hears of them.
        platform.synchronize();
        platform.set32(unit, COMMAND_TAIL, self.next);
        wait("COMPLETION_WAIT", || {
            // A read of a register takes its time.
            platform.get32(unit, COMMAND_HEAD);
            platform.read(self.done, 0) == self.number
        })
    }
}
