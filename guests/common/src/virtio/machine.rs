// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What drivers need of a machine.

use crate::memory::Region;
use crate::pci::Config;

/// Where BARs are placed first, in the window.
pub const FIRST: u64 = 0x10_0000;
/// Where those of another function are, if there is one.
pub const THIRD: u64 = 0x30_0000;

/// What drivers need of a machine.
pub struct Machine {
    /// Configuration spaces.
    pub config: Config,
    /// Where the first device behind MMIO is; then there is no PCI.
    pub mmio: Option<u64>,
    /// Where BARs can be.
    pub window: Region,
    /// Reads memory or a device: address, and bytes, which are 1, 2, 4 or 8.
    pub read: fn(u64, u8) -> u64,
    /// Writes.
    pub write: fn(u64, u8, u64),
    /// Writes to memory, by one of its first instructions: by its place visits to the hypervisor are known to be a first touch.
    pub touch: fn(u64),
    /// Reads where nothing may be.
    pub probe: fn(u64),
    /// Lets the first message of the function in a slot arrive here. Returns its address and its data, unless firmware has written them
    /// to the function's table.
    pub message: fn(u8) -> Option<(u64, u32)>,
    /// How often messages have arrived.
    pub interrupts: fn() -> u32,
    /// Sleeps until a message arrives, unless there were more than so many already; may return before that.
    pub sleep: fn(u32),
    /// Memory for rings and buffers, at a multiple of 4 KiB: 128 KiB for a disk, 576 KiB for a network device.
    pub memory: u64,
    /// Where other things than BARs are.
    pub elsewhere: [u64; 8],
}
