// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events as programs see them.

use turnstile_service::abi::{self, Kind, REGISTERS};

/// What a service is entered for. Devices have numbers: a service with one device knows it as 0. That of a member's device has the
/// member in it ([`split_device`](crate::split_device)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A guest reads `size` bytes (1, 2, 4 or 8) at `offset` of a device: the answer's value.
    Read {
        /// The device.
        device: u64,
        /// In bytes.
        offset: u64,
        /// In bytes.
        size: u64,
    },
    /// A guest writes.
    Write {
        /// The device.
        device: u64,
        /// In bytes.
        offset: u64,
        /// In bytes.
        size: u64,
        /// What it writes; bits beyond the size are zero.
        value: u64,
    },
    /// Guests have rung.
    Doorbell {
        /// The queues: a bit for each. Each member has [`MEMBER_QUEUES`](crate::MEMBER_QUEUES) of them.
        queues: u64,
        /// The time now, in nanoseconds.
        now: u64,
    },
    /// Characters were typed, or the terminal has another size. The answer's value says how many of them the service has taken.
    Input {
        /// The device, or the number of a port ([`send`](crate::send)): without characters that is open, closed or has room.
        device: u64,
        /// The characters, at most eight.
        typed: Characters,
        /// How many the service has taken before them, in all its lives.
        position: u64,
        /// The size of the terminal ([`split_size`](crate::split_size)).
        size: u64,
    },
    /// The time of the alarm has come: the time now, in nanoseconds.
    Alarm(u64),
    /// A guest writes characters to a terminal by a call.
    TerminalWrite(Characters),
    /// A guest reads characters from a terminal by a call: the answer's count and words.
    TerminalRead,
    /// Something that this version of the runtime does not know.
    Unknown,
}

impl Event {
    /// Reads an event from the registers.
    #[inline(always)] // Once in each program.
    pub(crate) const fn from_registers([kind, a, b, c, d, e]: [u64; REGISTERS]) -> Self {
        match Kind::from_number(kind) {
            Some(Kind::Read) => Self::Read { device: a, offset: b, size: c },
            Some(Kind::Write) => Self::Write { device: a, offset: b, size: c, value: d },
            Some(Kind::Doorbell) => Self::Doorbell { queues: a, now: b },
            Some(Kind::Input) => {
                Self::Input { device: a, typed: Characters { count: b, words: [c, 0] }, position: d, size: e }
            }
            Some(Kind::Alarm) => Self::Alarm(a),
            Some(Kind::TerminalWrite) => Self::TerminalWrite(Characters { count: b, words: [c, d] }),
            Some(Kind::TerminalRead) => Self::TerminalRead,
            // Events of members' lives, and of the machine's device, have methods of their own.
            Some(Kind::Attach | Kind::Memory | Kind::Detach | Kind::Device | Kind::Interrupt) | None => {
                Self::Unknown
            }
        }
    }
}

/// Up to 16 characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Characters {
    /// How many.
    pub count: u64,
    /// The characters, the first in the lowest byte of the first word.
    pub words: [u64; 2],
}

impl Characters {
    /// Returns them one by one.
    pub fn iter(&self) -> impl Iterator<Item = u8> + use<> {
        abi::characters(self.count, self.words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_become_events() {
        let event = |kind: Kind| Event::from_registers([kind as u64, 1, 2, 3, 4, 5]);
        assert_eq!(event(Kind::Read), Event::Read { device: 1, offset: 2, size: 3 });
        assert_eq!(event(Kind::Write), Event::Write { device: 1, offset: 2, size: 3, value: 4 });
        assert_eq!(event(Kind::Doorbell), Event::Doorbell { queues: 1, now: 2 });
        let typed = Characters { count: 2, words: [3, 0] };
        assert_eq!(event(Kind::Input), Event::Input { device: 1, typed, position: 4, size: 5 });
        assert_eq!(event(Kind::Alarm), Event::Alarm(1));
        assert_eq!(event(Kind::TerminalWrite), Event::TerminalWrite(Characters { count: 2, words: [3, 4] }));
        assert_eq!(event(Kind::TerminalRead), Event::TerminalRead);
        assert_eq!(Event::from_registers([0; REGISTERS]), Event::Unknown);
        assert!(typed.iter().eq([3, 0]));
    }
}
