// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The ways to reset a PC: the keyboard controller's line, the chip set's reset register, and the fast one of the PS/2.

/// The guest asked for a reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// Of the processors: an INIT to all of them, behind which the firmware looks why ([`crate::Cmos::take_resume`]).
    Processors,
    /// Of the whole machine.
    Machine,
}

/// The three ports. Of the keyboard controller there is nothing but that line: it is never busy, and never has a byte.
#[derive(Clone, Copy, Debug, Default)]
pub struct ResetPorts {
    control: u8,
    fast: u8,
}

impl ResetPorts {
    /// The keyboard controller's status and command.
    pub const KEYBOARD: u16 = 0x64;
    /// The PS/2's system control port A.
    pub const FAST: u16 = 0x92;
    /// The chip set's reset control register (Intel ICH9, section 13.7.5), which FADT names.
    pub const CONTROL: u16 = 0xcf9;
    /// What to write there for a full reset.
    pub const FULL: u8 = 0x0e;
    /// The keyboard controller's command that pulses the reset line.
    const PULSE: u8 = 0xfe;
    /// Port 0x92: address line 20, always open here.
    const A20: u8 = 1 << 1;
    /// Port 0x92: reset on a rising bit.
    const FAST_RESET: u8 = 1 << 0;
    /// Port 0xcf9: reset on a rising bit.
    const RESET_CPU: u8 = 1 << 2;
    /// Port 0xcf9: that reset is one of the machine.
    const SYSTEM: u8 = 1 << 1;
    /// Port 0xcf9: the bits that are kept.
    const KEPT: u8 = Self::SYSTEM | 1 << 3;

    /// Makes them in their reset state.
    pub const fn new() -> Self {
        Self { control: 0, fast: 0 }
    }

    /// Says whether a port is one of them.
    pub const fn has(port: u16) -> bool {
        matches!(port, Self::KEYBOARD | Self::FAST | Self::CONTROL)
    }

    /// Reads a port.
    pub fn read(&self, port: u16) -> u8 {
        match port {
            Self::FAST => self.fast | Self::A20,
            Self::CONTROL => self.control,
            _ => 0,
        }
    }

    /// Writes a port. Returns what the guest resets.
    pub fn write(&mut self, port: u16, value: u8) -> Option<Reset> {
        match port {
            Self::KEYBOARD => (value == Self::PULSE).then_some(Reset::Processors),
            Self::FAST => {
                let rises = value & !self.fast & Self::FAST_RESET != 0;
                self.fast = value & Self::FAST_RESET;
                rises.then_some(Reset::Processors)
            }
            Self::CONTROL => {
                self.control = value & Self::KEPT;
                let what = if value & Self::SYSTEM == 0 { Reset::Processors } else { Reset::Machine };
                (value & Self::RESET_CPU != 0).then_some(what)
            }
            _ => None,
        }
    }
}
