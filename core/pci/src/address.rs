// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a function is, and how an access to the configuration space names it.

use core::fmt;

/// How many bytes of configuration space a function has in ECAM.
pub const ECAM_FUNCTION: u64 = 4096;
/// How many bytes of ECAM a bus takes: 32 devices of 8 functions.
pub const ECAM_BUS: u64 = 256 * ECAM_FUNCTION;

/// The address of a function on a PCI segment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(u16);

impl Address {
    /// Makes an address; `None` if the device is not below 32 or the function not below 8.
    pub const fn new(bus: u8, device: u8, function: u8) -> Option<Self> {
        if device < 32 && function < 8 {
            Some(Self((bus as u16) << 8 | (device as u16) << 3 | function as u16))
        } else {
            None
        }
    }

    /// The address that a requester ID names: bus in bits 15 to 8, device in 7 to 3, function in 2 to 0.
    pub const fn from_requester(id: u16) -> Self {
        Self(id)
    }

    /// Its requester ID.
    pub const fn requester(self) -> u16 {
        self.0
    }

    /// The bus.
    pub const fn bus(self) -> u8 {
        (self.0 >> 8) as u8
    }

    /// The device on the bus, below 32.
    pub const fn device(self) -> u8 {
        (self.0 >> 3) as u8 & 31
    }

    /// The function of the device, below 8.
    pub const fn function(self) -> u8 {
        self.0 as u8 & 7
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x}:{:02x}.{}", self.bus(), self.device(), self.function())
    }
}

/// Returns which function an offset into ECAM names, and the offset in its configuration space (PCI Express Base Specification,
/// section 7.2.2). `None` behind bus 255.
pub const fn ecam(offset: u64) -> Option<(Address, u16)> {
    if offset < 256 * ECAM_BUS {
        Some((Address((offset / ECAM_FUNCTION) as u16), (offset % ECAM_FUNCTION) as u16))
    } else {
        None
    }
}

/// Configuration mechanism #1 of PCs (PCI Local Bus Specification, section 3.2.2.3.2): an address in the port 0xcf8, data in the
/// ports 0xcfc to 0xcff.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConfigPorts {
    latch: u32,
}

impl ConfigPorts {
    /// The port of the address, which is 32 bits wide.
    pub const ADDRESS: u16 = 0xcf8;
    /// The first of four ports for the data.
    pub const DATA: u16 = 0xcfc;
    /// Bits of the address that can be set; the others read as zero.
    const WRITABLE: u32 = 0x80ff_fffc;
    const ENABLE: u32 = 1 << 31;

    /// Makes the ports as they are after a reset.
    pub const fn new() -> Self {
        Self { latch: 0 }
    }

    /// Reads the address. `None` unless all 32 bits are read at once: other accesses belong to other devices (0xcf9 resets a PC).
    pub const fn read(&self, port: u16, size: u8) -> Option<u32> {
        if port == Self::ADDRESS && size == 4 { Some(self.latch) } else { None }
    }

    /// Writes the address, and says whether the access was one to it: 32 bits at once.
    pub const fn write(&mut self, port: u16, size: u8, value: u32) -> bool {
        let hit = port == Self::ADDRESS && size == 4;
        if hit {
            self.latch = value & Self::WRITABLE;
        }
        hit
    }

    /// Returns which function an access to a port of the data means, and the offset in its configuration space. `None` if it is
    /// no such port, if the access goes beyond the last, or if the address is not enabled: then nothing answers.
    pub const fn target(&self, port: u16, size: u8) -> Option<(Address, u16)> {
        let within = port.wrapping_sub(Self::DATA);
        if within >= 4 || within + size as u16 > 4 || self.latch & Self::ENABLE == 0 {
            return None;
        }
        Some((Address((self.latch >> 8) as u16), (self.latch & 0xfc) as u16 + within))
    }
}
