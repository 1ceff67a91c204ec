// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The clock of a vCPU (`struct pvclock_vcpu_time_info`) and the wall clock (`struct pvclock_wall_clock`).

use crate::{Memory, Scale};

/// The clock is the same on all vCPUs (KVM_FEATURE_CLOCKSOURCE_STABLE_BIT).
const STABLE: u32 = 1 << 0;
/// The VM was paused (PVCLOCK_GUEST_STOPPED): the guest takes it back when it has seen it.
const PAUSED: u32 = 1 << 1;

/// What a guest reads to know how long its VM has run, from its time stamp counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockRecord {
    /// A value of the guest's time stamp counter.
    pub timestamp: u64,
    /// Nanoseconds that the VM had run for then.
    pub time: u64,
    /// How ticks since then become nanoseconds.
    pub scale: Scale,
    /// Whether the VM was paused since the guest has looked.
    pub paused: bool,
}

impl ClockRecord {
    /// Bytes of the record.
    pub const SIZE: u64 = 32;
    /// What its address is a multiple of, so that it crosses no page.
    pub const ALIGNMENT: u64 = 4;
    /// Where the word is that [`ClockRecord::tells_of_pause`] reads.
    pub const STATE: u64 = 28;
    /// The flags in that word begin at this bit.
    const FLAGS_SHIFT: u32 = 8;

    /// Says whether a record with this word tells its guest of a pause that the guest has not taken back.
    pub const fn tells_of_pause(state: u32) -> bool {
        state >> Self::FLAGS_SHIFT & PAUSED != 0
    }

    /// Writes the record; `version` is even, and has not been in this memory before. Returns the version to use next.
    pub fn write(&self, memory: &mut impl Memory, version: u32) -> u32 {
        let next = version.wrapping_add(2);
        memory.write_u32(0, version.wrapping_add(1));
        memory.write_u32(4, 0);
        write_halves(memory, 8, self.timestamp);
        write_halves(memory, 16, self.time);
        memory.write_u32(24, self.scale.multiplier);
        let flags = STABLE | if self.paused { PAUSED } else { 0 };
        memory.write_u32(Self::STATE, u32::from(self.scale.shift as u8) | flags << Self::FLAGS_SHIFT);
        memory.write_u32(0, next);
        next
    }
}

/// The record may be at any multiple of four.
fn write_halves(memory: &mut impl Memory, offset: u64, value: u64) {
    memory.write_u32(offset, value as u32);
    memory.write_u32(offset + 4, (value >> 32) as u32);
}

/// The wall clock at the moment from which a VM's time counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WallClock {
    /// Seconds since 1970.
    pub seconds: u32,
    /// And nanoseconds.
    pub nanoseconds: u32,
}

impl WallClock {
    /// Bytes of the record.
    pub const SIZE: u64 = 12;
    /// What its address is a multiple of.
    pub const ALIGNMENT: u64 = 4;

    /// Makes the wall clock of a VM that has run for `time` nanoseconds when it is `now`, in nanoseconds since 1970.
    pub const fn new(now: u64, time: u64) -> Self {
        let since_1970 = now.saturating_sub(time);
        Self {
            seconds: (since_1970 / 1_000_000_000) as u32,
            nanoseconds: (since_1970 % 1_000_000_000) as u32,
        }
    }

    /// Writes the record, whose version was `version`, the one that the guest's memory holds.
    pub fn write(&self, memory: &mut impl Memory, version: u32) {
        // Odd from here on, whatever it was.
        let odd = version | 1;
        memory.write_u32(0, odd);
        memory.write_u32(4, self.seconds);
        memory.write_u32(8, self.nanoseconds);
        memory.write_u32(0, odd.wrapping_add(1));
    }
}
