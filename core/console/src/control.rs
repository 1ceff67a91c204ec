// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which ports there are, and what both sides say about them (section 5.3.6.2).

use turnstile_virtio::config::ConsoleControl;
use turnstile_virtio::device::{Cursor, Queue, Turn};
use turnstile_virtio::memory::Memory;
use turnstile_virtio::violation::Violation;

/// How many ports there are at most.
pub const PORTS: usize = 16;
/// How many messages of the driver are read in a call.
const MESSAGES: u32 = 32;

/// The name of a port: none if it is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Name {
    bytes: [u8; Self::MOST],
    length: usize,
}

impl Name {
    /// How many bytes it has at most.
    pub const MOST: usize = 31;

    /// Makes a name of UTF-8. What is beyond [`Name::MOST`] is cut off.
    pub const fn new(text: &[u8]) -> Self {
        let (mut bytes, mut length) = ([0; Self::MOST], 0);
        let (mut to, mut from): (&mut [u8], &[u8]) = (&mut bytes, text);
        while let (Some((place, rest)), Some((byte, more))) = (to.split_first_mut(), from.split_first()) {
            *place = *byte;
            (to, from) = (rest, more);
            length += 1;
        }
        Self { bytes, length }
    }

    /// Returns its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// Who keeps what was said, so that a device that is killed says nothing twice, and forgets nothing. What is kept last is what counts.
pub trait Journal {
    /// The driver is about to see a message, in the buffer at this [position](Queue::position) of the queue.
    fn says(&mut self, position: u16, message: ConsoleControl);
    /// Keeps the [words](Ports::words): no message is about to be seen.
    fn keep(&mut self, words: [u64; WORDS]);
}

/// Keeps nothing.
impl Journal for () {
    fn says(&mut self, _: u16, _: ConsoleControl) {}
    fn keep(&mut self, _: [u64; WORDS]) {}
}

/// How many words [`Ports`] keeps.
pub const WORDS: usize = 3;

/// A port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// It is a console; otherwise a stream of bytes with a name.
    pub is_console: bool,
    /// Its name.
    pub name: Name,
    /// Its size, in columns and rows; of a console.
    pub size: (u16, u16),
    /// Somebody is at the other end.
    pub is_open: bool,
}

/// What was said, by port: a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The driver has read of the device.
    ready: bool,
    /// It is ready for the port.
    port_ready: u16,
    /// A program of the guest has opened it.
    pub opened: u16,
    /// Messages that are to be sent, of each kind.
    add: u16,
    remove: u16,
    console: u16,
    name: u16,
    /// That a port is closed comes before that it is open.
    close: u16,
    open: u16,
    resize: u16,
}

/// Puts four lists into a word.
const fn pack([a, b, c, d]: [u16; 4]) -> u64 {
    (a as u64) | (b as u64) << 16 | (c as u64) << 32 | (d as u64) << 48
}

/// Takes them out again.
const fn unpack(word: u64) -> [u16; 4] {
    [word as u16, (word >> 16) as u16, (word >> 32) as u16, (word >> 48) as u16]
}

impl State {
    /// Nothing was said.
    pub const NONE: Self = Self {
        ready: false,
        port_ready: 0,
        opened: 0,
        add: 0,
        remove: 0,
        console: 0,
        name: 0,
        close: 0,
        open: 0,
        resize: 0,
    };
}

/// The ports of a device.
#[derive(Clone, Copy, Debug)]
pub struct Ports {
    ports: [Option<Port>; PORTS],
    /// What was said.
    pub state: State,
}

impl Ports {
    /// A device with ports; with the `state` of an earlier life, if there was one.
    pub const fn new(ports: [Option<Port>; PORTS], state: State) -> Self {
        Self { ports, state }
    }

    /// A device that goes on behind an earlier life with what that has kept. Which ports are open is as it was then.
    pub fn resume(ports: [Option<Port>; PORTS], [first, second, third]: [u64; WORDS]) -> Self {
        let [add, remove, console, name] = unpack(first);
        let [close, open, resize, _] = unpack(second);
        let [port_ready, opened, is_open, ready] = unpack(third);
        let ready = ready != 0;
        let state = State { ready, port_ready, opened, add, remove, console, name, close, open, resize };
        let mut ports = ports;
        for (number, port) in ports.iter_mut().enumerate() {
            port.iter_mut().for_each(|port| port.is_open = is_open >> number & 1 != 0);
        }
        Self { ports, state }
    }

    /// Returns what is to be kept.
    pub fn words(&self) -> [u64; WORDS] {
        let State { ready, port_ready, opened, add, remove, console, name, close, open, resize } = self.state;
        let is_open = (0..).zip(&self.ports).filter(|(_, port)| port.is_some_and(|port| port.is_open));
        let is_open = is_open.fold(0, |all, (number, _)| all | 1 << number);
        [
            pack([add, remove, console, name]),
            pack([close, open, resize, 0]),
            pack([port_ready, opened, is_open, ready.into()]),
        ]
    }

    /// Returns a port.
    pub fn get(&self, number: usize) -> Option<Port> {
        self.ports.get(number).copied().flatten()
    }

    /// Says whether there are messages to be sent.
    pub fn has_news(&self) -> bool {
        self.next().is_some()
    }

    /// The driver has reset the device.
    pub fn reset(&mut self) {
        self.state = State::default();
    }

    /// Changes a port, adds it or removes it. False if there can be no such port.
    pub fn set(&mut self, number: usize, port: Option<Port>) -> bool {
        let Some(place) = self.ports.get_mut(number) else { return false };
        let old = core::mem::replace(place, port);
        let bit = 1 << number;
        let tell = |list: &mut u16, on: bool| *list |= if on { bit } else { 0 };
        let State { ready, port_ready, add, remove, close, open, resize, opened, .. } = &mut self.state;
        match (old, port) {
            (None, Some(_)) => tell(add, *ready),
            (Some(_), None) => {
                tell(remove, *ready);
                *port_ready &= !bit;
                *opened &= !bit;
            }
            (Some(old), Some(new)) => {
                let is_ready = *port_ready & bit != 0;
                match (old.is_open, new.is_open) {
                    (false, true) => tell(open, is_ready),
                    // What was not told is not taken back.
                    (true, false) if *open & bit != 0 => *open &= !bit,
                    (true, false) => tell(close, is_ready),
                    _ => {}
                }
                tell(resize, is_ready && new.is_console && old.size != new.size);
            }
            (None, None) => {}
        }
        true
    }

    /// Reads the driver's messages. Those that make no sense are ignored.
    pub fn listen<M: Memory>(
        &mut self,
        queue: &mut Queue,
        memory: &M,
        journal: &mut impl Journal,
    ) -> Result<Turn, Violation> {
        for _ in 0..MESSAGES {
            let Some(chain) = queue.pop(memory)? else {
                let interrupt = queue.publish(memory)?;
                return Ok(Turn { interrupt, again: queue.arm(memory)? });
            };
            let (mut cursor, mut bytes) = (Cursor::new(chain), [0; ConsoleControl::LENGTH]);
            if cursor.read(memory, &mut bytes)? == bytes.len() {
                self.hear(ConsoleControl::from_bytes(&bytes));
                // Before the driver has the buffer back: whoever is killed before that hears it again.
                journal.keep(self.words());
            }
            queue.complete(memory, cursor.finish(), 0)?;
        }
        Ok(Turn { interrupt: queue.publish(memory)?, again: true })
    }

    fn hear(&mut self, message: ConsoleControl) {
        let ConsoleControl { port: number, event, value } = message;
        let state = &mut self.state;
        if event == ConsoleControl::DEVICE_READY {
            *state = State { ready: value == 1, ..State::default() };
            let all = (0..).zip(&self.ports).filter(|(_, port)| port.is_some() && value == 1);
            state.add = all.fold(0, |all, (number, _)| all | 1 << number);
            return;
        }
        let port = self.ports.get(number as usize).copied().flatten();
        let Some(port) = port.filter(|_| state.ready) else { return };
        let bit = 1 << number;
        match (event, value) {
            (ConsoleControl::PORT_READY, 1) => {
                state.port_ready |= bit;
                let tell = |list: &mut u16, on: bool| *list |= if on { bit } else { 0 };
                tell(&mut state.console, port.is_console);
                tell(&mut state.resize, port.is_console);
                tell(&mut state.name, port.name.length != 0);
                tell(&mut state.open, port.is_open);
                state.close &= !bit;
            }
            (ConsoleControl::PORT_READY, _) => state.port_ready &= !bit,
            (ConsoleControl::PORT_OPEN, 1) => state.opened |= bit,
            (ConsoleControl::PORT_OPEN, _) => state.opened &= !bit,
            _ => {}
        }
    }

    /// The next message that is to be sent, and the bytes behind it.
    fn next(&self) -> Option<(ConsoleControl, Tail)> {
        let State { add, remove, console, name, close, open, resize, .. } = self.state;
        let kinds = [
            (remove, ConsoleControl::DEVICE_REMOVE, 0),
            (add, ConsoleControl::DEVICE_ADD, 0),
            (console, ConsoleControl::CONSOLE_PORT, 1),
            (name, ConsoleControl::PORT_NAME, 0),
            (resize, ConsoleControl::RESIZE, 0),
            (close, ConsoleControl::PORT_OPEN, 0),
            (open, ConsoleControl::PORT_OPEN, 1),
        ];
        let (list, event, value) = kinds.into_iter().find(|(list, ..)| *list != 0)?;
        let number = list.trailing_zeros();
        let port = self.get(number as usize);
        let tail = match (event, port) {
            (ConsoleControl::PORT_NAME, Some(port)) => Tail::Name(port.name),
            (ConsoleControl::RESIZE, Some(port)) => Tail::Size(port.size),
            _ => Tail::None,
        };
        Some((ConsoleControl { port: number, event, value }, tail))
    }

    /// Sends messages, as far as the driver has buffers for them. Returns whether it wants an interrupt.
    pub fn speak<M: Memory>(
        &mut self,
        queue: &mut Queue,
        memory: &M,
        journal: &mut impl Journal,
    ) -> Result<bool, Violation> {
        while let Some((message, tail)) = self.next() {
            let Some(chain) = queue.pop(memory)? else { break };
            let mut cursor = Cursor::new(chain);
            cursor.write(memory, &message.to_bytes())?;
            match tail {
                Tail::None => {}
                Tail::Name(name) => drop(cursor.write(memory, name.as_bytes())?),
                Tail::Size((columns, rows)) => {
                    cursor.write(memory, &columns.to_le_bytes())?;
                    cursor.write(memory, &rows.to_le_bytes())?;
                }
            }
            let written = cursor.written();
            journal.says(queue.position(), message);
            queue.complete(memory, cursor.finish(), written)?;
            self.said(message);
            journal.keep(self.words());
        }
        queue.publish(memory)
    }

    /// The driver has seen a message: perhaps an earlier life has sent it.
    pub fn said(&mut self, message: ConsoleControl) {
        let state = &mut self.state;
        let list = match message.event {
            ConsoleControl::DEVICE_REMOVE => &mut state.remove,
            ConsoleControl::DEVICE_ADD => &mut state.add,
            ConsoleControl::CONSOLE_PORT => &mut state.console,
            ConsoleControl::PORT_NAME => &mut state.name,
            ConsoleControl::RESIZE => &mut state.resize,
            _ if message.value == 0 => &mut state.close,
            _ => &mut state.open,
        };
        *list &= !(1u32.wrapping_shl(message.port)) as u16;
    }
}

/// What follows a message.
#[derive(Clone, Copy)]
enum Tail {
    None,
    Name(Name),
    Size((u16, u16)),
}
