// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command queue (sections 3.5 and 4).

use turnstile_paging::{PhysAddr, Tables};

use super::platform::{Error, Platform};
use super::registers::{CMDQ_BASE, CMDQ_CONS, CMDQ_PROD, Features, GERROR, GERROR_COMMANDS, GERRORN, POLLS};

/// The most entries, as a logarithm: a page.
const MOST: u32 = 8;
/// The register of a queue's address: what is read is allocated in caches.
const ALLOCATE: u64 = 1 << 62;

/// What an SMMU is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// CMD_CFGI_STE, the levels above it included.
    ForgetStream(u32),
    /// CMD_CFGI_ALL.
    ForgetConfigurations,
    /// CMD_TLBI_EL2_ALL.
    ForgetHypervisor,
    /// CMD_TLBI_NSNH_ALL.
    ForgetGuests,
    /// CMD_SYNC: it is consumed when what is before it is done.
    Synchronize,
}

impl Command {
    fn words(self) -> [u64; 2] {
        /// All streams: a range of 2 to the 32.
        const ALL: u64 = 31;
        match self {
            Self::ForgetStream(stream) => [0x03 | u64::from(stream) << 32, 0],
            Self::ForgetConfigurations => [0x04, ALL],
            Self::ForgetHypervisor => [0x20, 0],
            Self::ForgetGuests => [0x30, 0],
            Self::Synchronize => [0x46, 0],
        }
    }
}

/// The command queue. Each command is waited for, so it never fills up.
#[derive(Debug)]
pub(super) struct Commands {
    queue: PhysAddr,
    /// The logarithm of its entries.
    bits: u32,
    /// Where the next one goes; the bit above the index changes each time round.
    next: u32,
}

impl Commands {
    /// Makes an empty one.
    pub fn new(features: &Features, tables: &mut impl Tables) -> Result<Self, Error> {
        let [bits, _] = features.queues;
        let bits = bits.min(MOST);
        let queue = tables.allocate(16 << MOST).ok_or(turnstile_paging::Error::OutOfTables)?;
        Ok(Self { queue, bits, next: 0 })
    }

    /// Tells the SMMU where it is.
    pub fn set_up(&self, platform: &mut impl Platform) {
        platform.set64(CMDQ_BASE, self.queue.0 | ALLOCATE | u64::from(self.bits));
        platform.set32(CMDQ_PROD, self.next);
        platform.set32(CMDQ_CONS, self.next);
        // Errors of who had it before are known.
        let errors = platform.get32(GERROR);
        platform.set32(GERRORN, errors);
    }

    /// Has a command consumed.
    pub fn issue(&mut self, platform: &mut impl Platform, command: Command) -> Result<(), Error> {
        let at = (self.next & ((1 << self.bits) - 1)) as usize * 2;
        for (word, value) in command.words().into_iter().enumerate() {
            platform.write(self.queue, at + word, value);
        }
        self.next = self.next.wrapping_add(1) & ((2 << self.bits) - 1);
        // The command, and the tables that it is about, before the SMMU hears of it.
        platform.synchronize();
        platform.set32(CMDQ_PROD, self.next);
        for _ in 0..POLLS {
            if platform.get32(CMDQ_CONS) & ((2 << self.bits) - 1) == self.next {
                return Ok(());
            }
            if (platform.get32(GERROR) ^ platform.get32(GERRORN)) & GERROR_COMMANDS != 0 {
                return Err(Error::Refused);
            }
        }
        Err(Error::Stuck("CMDQ_PROD"))
    }
}
