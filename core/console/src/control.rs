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

/// A port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// It is a console; otherwise a stream of bytes with a name.
    pub is_console: bool,
    /// Its name: UTF-8; none if it is empty.
    pub name: &'static str,
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
    open: u16,
    resize: u16,
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
        let State { ready, port_ready, add, remove, open, resize, opened, .. } = &mut self.state;
        match (old, port) {
            (None, Some(_)) => tell(add, *ready),
            (Some(_), None) => {
                tell(remove, *ready);
                *port_ready &= !bit;
                *opened &= !bit;
            }
            (Some(old), Some(new)) => {
                let is_ready = *port_ready & bit != 0;
                tell(open, is_ready && old.is_open != new.is_open);
                tell(resize, is_ready && new.is_console && old.size != new.size);
            }
            (None, None) => {}
        }
        true
    }

    /// Reads the driver's messages. Those that make no sense are ignored.
    pub fn listen<M: Memory>(&mut self, queue: &mut Queue, memory: &M) -> Result<Turn, Violation> {
        for _ in 0..MESSAGES {
            let Some(chain) = queue.pop(memory)? else {
                let interrupt = queue.publish(memory)?;
                return Ok(Turn { interrupt, again: queue.arm(memory)? });
            };
            let (mut cursor, mut bytes) = (Cursor::new(chain), [0; ConsoleControl::LENGTH]);
            if cursor.read(memory, &mut bytes)? == bytes.len() {
                self.hear(ConsoleControl::from_bytes(&bytes));
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
                tell(&mut state.name, !port.name.is_empty());
                tell(&mut state.open, port.is_open);
            }
            (ConsoleControl::PORT_READY, _) => state.port_ready &= !bit,
            (ConsoleControl::PORT_OPEN, 1) => state.opened |= bit,
            (ConsoleControl::PORT_OPEN, _) => state.opened &= !bit,
            _ => {}
        }
    }

    /// The next message that is to be sent, and the bytes behind it.
    fn next(&self) -> Option<(ConsoleControl, Tail)> {
        let State { add, remove, console, name, open, resize, .. } = self.state;
        let kinds = [
            (remove, ConsoleControl::DEVICE_REMOVE),
            (add, ConsoleControl::DEVICE_ADD),
            (console, ConsoleControl::CONSOLE_PORT),
            (name, ConsoleControl::PORT_NAME),
            (resize, ConsoleControl::RESIZE),
            (open, ConsoleControl::PORT_OPEN),
        ];
        let (list, event) = kinds.into_iter().find(|(list, _)| *list != 0)?;
        let number = list.trailing_zeros();
        let port = self.ports.get(number as usize).copied().flatten();
        let value = match event {
            ConsoleControl::CONSOLE_PORT => 1,
            ConsoleControl::PORT_OPEN => port.is_some_and(|port| port.is_open).into(),
            _ => 0,
        };
        let tail = match (event, port) {
            (ConsoleControl::PORT_NAME, Some(port)) => Tail::Name(port.name),
            (ConsoleControl::RESIZE, Some(port)) => Tail::Size(port.size),
            _ => Tail::None,
        };
        Some((ConsoleControl { port: number, event, value }, tail))
    }

    /// Sends messages, as far as the driver has buffers for them. Returns whether it wants an interrupt.
    pub fn speak<M: Memory>(&mut self, queue: &mut Queue, memory: &M) -> Result<bool, Violation> {
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
            queue.complete(memory, cursor.finish(), written)?;
            self.said(message);
        }
        queue.publish(memory)
    }

    fn said(&mut self, message: ConsoleControl) {
        let state = &mut self.state;
        let list = match message.event {
            ConsoleControl::DEVICE_REMOVE => &mut state.remove,
            ConsoleControl::DEVICE_ADD => &mut state.add,
            ConsoleControl::CONSOLE_PORT => &mut state.console,
            ConsoleControl::PORT_NAME => &mut state.name,
            ConsoleControl::RESIZE => &mut state.resize,
            _ => &mut state.open,
        };
        *list &= !(1 << message.port);
    }
}

/// What follows a message.
#[derive(Clone, Copy)]
enum Tail {
    None,
    Name(&'static str),
    Size((u16, u16)),
}
