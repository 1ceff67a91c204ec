// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupts by message: a write to the GICv2m frame of a VM's board becomes an edge of an SPI. So does one to the registers of a device
//! behind MMIO, which is that device's own.

use turnstile_devices::MsiFrame;
use turnstile_machine::map;

use super::objects::Vm;

/// The frame, which makes SPIs of messages.
pub const MESSAGES: MsiFrame = MsiFrame { first: map::FIRST_MESSAGE, count: map::MESSAGES };

impl Vm {
    /// Returns the SPI that a write of `data` to `address` by a PCI function becomes; `None` if the frame is not there.
    #[inline] // On the way of each message.
    pub fn message_intid(&self, address: u64, data: u64) -> Option<u32> {
        MESSAGES.write(address.wrapping_sub(self.machine.map().pci.frame.base), data)
    }

    /// Returns the SPI of the device behind MMIO whose registers begin at an address; `None` if it has no such device.
    pub fn line_intid(&self, address: u64) -> Option<u32> {
        let windows = &self.machine.map().virtio;
        let number = windows.number(address).filter(|number| *number < self.virtio)?;
        Some(windows.device(number)?.intid)
    }

    /// Delivers a message-signalled interrupt; false if nothing is at that address.
    pub fn message(&self, address: u64, data: u64) -> bool {
        let intid = self.message_intid(address, data).or_else(|| self.line_intid(address));
        intid.inspect(|intid| self.edge_spi(*intid)).is_some()
    }
}
