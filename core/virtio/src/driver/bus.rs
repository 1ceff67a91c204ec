// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a driver reaches its device.

use super::pci::Function;
use crate::memory::Memory;

/// The registers of a device, and the memory that it shares with its driver.
pub trait Bus {
    /// Its registers.
    type Function: Function;
    /// The memory that both reach, by the addresses that the device uses, with the orderings that devices need.
    type Memory: Memory;

    /// Its registers.
    fn function(&self) -> &Self::Function;
    /// The memory that both reach.
    fn memory(&self) -> &Self::Memory;
    /// The time in nanoseconds.
    fn time(&self) -> u64;
}
