// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Consoles (section 5.3).

use super::bytes::{Fields, Reader};
use super::space::{Configuration, SPACE};
use crate::features::Features;

/// The configuration of a console. Fields without their feature mean nothing to a driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Console {
    /// Its width in characters (SIZE).
    pub columns: u16,
    /// Its height in characters (SIZE).
    pub rows: u16,
    /// How many ports there are at most (MULTIPORT).
    pub max_ports: u32,
    /// The character that the driver wrote last without a queue (EMERG_WRITE).
    pub emergency: Option<u8>,
}

impl Console {
    /// `columns` and `rows` hold.
    pub const SIZE: Features = Features::bit(0);
    /// `max_ports` holds, and there are queues for control.
    pub const MULTIPORT: Features = Features::bit(1);
    /// A character can be written without a queue.
    pub const EMERG_WRITE: Features = Features::bit(2);
    /// Where that is.
    const EMERGENCY: u64 = 8;
}

impl Configuration for Console {
    const LENGTH: usize = 12;

    fn image(&self) -> [u8; SPACE] {
        Fields::new().u16(self.columns).u16(self.rows).u32(self.max_ports).bytes()
    }

    fn write(&mut self, offset: u64, size: u8, value: u64) -> bool {
        let hit = offset == Self::EMERGENCY && matches!(size, 1 | 2 | 4);
        if hit {
            self.emergency = Some(value as u8);
        }
        hit
    }
}

/// A message of the queues for control (section 5.3.6.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConsoleControl {
    /// The port.
    pub port: u32,
    /// What it is about.
    pub event: u16,
    /// What it says.
    pub value: u16,
}

impl ConsoleControl {
    /// How many bytes it has; a name may follow.
    pub const LENGTH: usize = 8;
    /// The driver is ready, or not.
    pub const DEVICE_READY: u16 = 0;
    /// A port is added.
    pub const DEVICE_ADD: u16 = 1;
    /// A port is removed.
    pub const DEVICE_REMOVE: u16 = 2;
    /// The driver is ready for a port, or not.
    pub const PORT_READY: u16 = 3;
    /// A port is a console.
    pub const CONSOLE_PORT: u16 = 4;
    /// The size of a console; columns and rows follow.
    pub const RESIZE: u16 = 5;
    /// A port is open, or closed.
    pub const PORT_OPEN: u16 = 6;
    /// The name of a port follows.
    pub const PORT_NAME: u16 = 7;

    /// Reads a message.
    pub fn from_bytes(bytes: &[u8; Self::LENGTH]) -> Self {
        let mut reader = Reader(bytes);
        Self { port: reader.u32(), event: reader.u16(), value: reader.u16() }
    }

    /// Writes a message.
    pub fn to_bytes(self) -> [u8; Self::LENGTH] {
        Fields::new().u32(self.port).u16(self.event).u16(self.value).bytes()
    }
}
