// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The named ports of a VM, between its service and the tool.
//!
//! All that the tool is told of a port is told under the lock of the ports, and so in the order in which it happened.

use alloc::vec::Vec;

use turnstile_devices::{Offer, Stream, Told};
use turnstile_service::abi::{self, Sent};

use crate::arch::service::Typed;
use crate::arch::vm::Vm;
use crate::line::{self, PortMessage};

/// A port.
struct Port {
    name: [u64; abi::PORT_NAME_WORDS as usize],
    stream: Stream,
}

/// The ports of a VM.
#[derive(Default)]
pub struct Ports {
    all: Vec<Port>,
    /// The life of the VM for which they can be opened; 0 if it has none.
    life: u32,
    /// The one that is offered something next, if there is something.
    next: usize,
}

/// Returns a name's words.
fn words(name: &str) -> [u64; abi::PORT_NAME_WORDS as usize] {
    let mut bytes = name.bytes();
    core::array::from_fn(|_| u64::from_le_bytes(core::array::from_fn(|_| bytes.next().unwrap_or(0))))
}

/// Tells the tool.
fn tell(vm: &Vm, port: usize, told: Told) {
    if told.closed {
        line::port_closed(vm, port as u8);
    }
    line::port_room(vm, port as u8, told.room);
}

impl Ports {
    /// Makes those of these names.
    pub fn new<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let port = |name| Port { name: words(name), stream: Stream::new() };
        Self { all: names.map(port).collect(), life: 0, next: 0 }
    }

    /// Returns the port of this number, if it is there.
    fn get(&mut self, number: u64) -> Option<&mut Port> {
        self.all.get_mut((number as usize).checked_sub(1)?)
    }

    /// Begins a life of the VM.
    pub const fn begin(&mut self, life: u32) {
        self.life = life;
    }

    /// The VM has stopped: nobody is at its ports any more.
    pub fn end(&mut self, vm: &Vm) {
        self.life = 0;
        for (port, number) in self.all.iter_mut().zip(1..) {
            tell(vm, number, port.stream.end());
        }
    }

    /// Takes what the tool says of a port. Says whether the service is to look.
    pub fn hear(&mut self, vm: &Vm, number: u8, message: PortMessage<'_>) -> bool {
        let life = self.life;
        let Some(Port { stream, .. }) = self.get(number.into()) else { return false };
        match message {
            PortMessage::Open { boots, room } if boots == life && life != 0 => {
                line::port_room(vm, number, stream.open(room));
            }
            // It is for another life.
            PortMessage::Open { .. } => {}
            PortMessage::Close => tell(vm, number.into(), stream.close()),
            PortMessage::Bytes(bytes) => stream.push(bytes),
            PortMessage::Room(bytes) => stream.add_room(bytes),
        }
        stream.has_offer()
    }

    /// Returns what the service is offered next; nothing, if there is nothing.
    pub fn offer(&mut self) -> Typed {
        let count = self.all.len();
        let turns = (0..count).map(|turn| (self.next + turn) % count);
        let Some(place) =
            turns.into_iter().find(|place| self.all.get(*place).is_some_and(|port| port.stream.has_offer()))
        else {
            return Typed::default();
        };
        self.next = (place + 1) % count;
        let Some(Offer { bytes, count, position }) =
            self.all.get_mut(place).and_then(|port| port.stream.offer())
        else {
            return Typed::default();
        };
        let characters = u64::from_le_bytes(bytes);
        Typed {
            port: place as u64 + 1,
            count: count as u64,
            characters,
            position,
            size: 0,
            is_news: count == 0,
        }
    }

    /// The service has handled that, and taken so much of it. Says whether there is more to offer.
    pub fn took(&mut self, vm: &Vm, typed: &Typed, taken: u64) -> bool {
        if let Some(Port { stream, .. }) = self.get(typed.port) {
            let told = stream.took(typed.count as usize, taken as usize);
            tell(vm, typed.port as usize, told);
        }
        self.all.iter().any(|port| port.stream.has_offer())
    }

    /// The service has room again for what it did not take.
    pub fn offer_again(&mut self) {
        self.all.iter_mut().for_each(|port| port.stream.offer_again());
    }

    /// Passes on what the service sends to a port. Returns how that is then.
    pub fn send(&mut self, vm: &Vm, number: u64, bytes: &[u8]) -> Option<Sent> {
        let Port { stream, .. } = self.get(number)?;
        let taken = stream.send(bytes.len());
        let (is_open, room, count) = stream.state();
        if let Some(bytes) = bytes.get(..taken).filter(|bytes| is_open && !bytes.is_empty()) {
            line::port(vm, number as u8, bytes);
        }
        Some(Sent { is_open, room, count })
    }

    /// Returns a word of a port's name.
    pub fn name(&mut self, number: u64, word: u64) -> Option<u64> {
        self.get(number)?.name.get(word as usize).copied()
    }
}
