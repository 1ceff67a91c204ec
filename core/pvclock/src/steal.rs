// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stolen time (`struct kvm_steal_time`): how long a vCPU was ready and did not run; and whether it runs now. Others need not wait
//! for one that does not run, nor ask it to flush its TLB.

use crate::Memory;

/// In the byte of the record that says so: the vCPU does not run.
pub const PREEMPTED: u32 = 1 << 0;
/// In the same byte, set by another vCPU while the first does not run: its TLB is to be flushed before it does.
pub const FLUSH_TLB: u32 = 1 << 1;

/// What a guest reads of a vCPU's stolen time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StealRecord {
    /// Nanoseconds.
    pub stolen: u64,
}

impl StealRecord {
    /// Bytes of the record.
    pub const SIZE: u64 = 64;
    /// What its address is a multiple of.
    pub const ALIGNMENT: u64 = 64;
    /// Where the 32 bits are whose lowest byte holds [`PREEMPTED`] and [`FLUSH_TLB`].
    pub const STATE: u64 = 16;

    /// Writes the record; `version` is even, and has not been in this memory before. Returns the version to use next.
    pub fn write(&self, memory: &mut impl Memory, version: u32) -> u32 {
        let next = version.wrapping_add(2);
        memory.write_u32(8, version.wrapping_add(1));
        memory.write_u64(0, self.stolen);
        memory.write_u32(12, 0);
        memory.write_u32(8, next);
        next
    }
}
