// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guest that exchanges packets with another VM, where the same guest receives them: as `peer` on its command line says.
//!
//! With `row=` it measures: it rings once for `packets=` packets of `bytes=` each, and then waits a while, in which the other one takes its interrupt and them.
//! At the end that says how many have come. With `segments` it sends [segments](segment) instead. With `sleep` both send in turn, and sleep
//! until the other one has sent. With `pairs` the devices have [two pairs](pairs) of queues. With `silence=` the other one alone sleeps, and that many microseconds pass between two operations. Without
//! `row=` it is a test, which attacks the device, too.

mod attacks;
mod bare;
mod buffers;
mod driver;
mod pairs;
mod segment;

use core::fmt::Write;

use crate::clock::Clock;
use crate::virtio::ring::Wrong;
use crate::virtio::{FIRST, Function, Machine, VENDOR};
use crate::{clock, options, row};
use driver::{ADDRESS, COUNT, DATA, DEVICE, Device, END, HELLO, LAST, MARK, Packet, SHORTEST};

/// How long a hello waits for an answer, in microseconds.
const PAUSE: u64 = 10_000;
/// How long the receiver may take for an operation, in microseconds, unless there is to be silence.
const AWAY: u64 = 10;

/// Tests, measures, or receives; returns whether the machine is to be reset for a second life.
pub fn run(console: &mut impl Write, machine: &Machine) -> bool {
    let done = match (options::get("peer"), options::get("row")) {
        (None, None) => return bare::run(console, machine),
        (None, Some(row)) => start(machine).and_then(Sender::new).and_then(|sender| sender.measure(row)),
        (Some(_), _) => start(machine).and_then(receive),
    };
    row::end(console, done);
    false
}

fn start(machine: &Machine) -> Result<Device<'_>, Wrong> {
    let slot = machine.config.find(VENDOR, DEVICE).next().ok_or("there is no network")?;
    let function = Function::place(machine, slot, machine.window.base + FIRST);
    Device::start(&function).ok_or("the device does not start")
}

/// How long nothing is sent between two operations, in microseconds; zero if the receiver does not sleep meanwhile.
fn silence() -> u64 {
    options::number("silence", 0)
}

/// Says that it is there while nothing comes; takes packets until the last end. Who sleeps says it at first, and to who asks, and, unless
/// there is to be silence, answers each packet.
fn receive(mut device: Device<'_>) -> Result<(), Wrong> {
    let answers = device.sleeps;
    device.sleeps |= silence() != 0;
    let hello = Packet { to: ADDRESS, from: device.mac, kind: HELLO, number: 0, bytes: SHORTEST };
    let (mut count, mut mark) = (0, 0);
    if device.sleeps {
        device.put(hello)?;
        device.send()?;
    }
    loop {
        let Some(came) = device.wait(PAUSE)? else {
            device.put(hello)?;
            device.send()?;
            continue;
        };
        let number = match came.kind {
            DATA if !answers => {
                count += 1;
                continue;
            }
            DATA | HELLO if device.sleeps => {
                count += u64::from(came.kind == DATA);
                device.put(Packet { to: came.from, from: device.mac, ..came })?;
                device.send()?;
                continue;
            }
            END => count,
            MARK => core::mem::replace(&mut mark, came.number),
            _ => continue,
        };
        device.put(Packet { to: came.from, kind: COUNT, number, ..hello })?;
        device.send()?;
        if (came.kind, came.number) == (END, LAST) {
            return Ok(());
        }
    }
}

/// Who sends.
struct Sender<'a> {
    device: Device<'a>,
    /// A packet as it is sent.
    packet: Packet,
    /// How many are sent at once.
    packets: u64,
    /// Whether they are segments.
    segments: bool,
    /// How long the receiver may take for an operation, in microseconds.
    pause: u64,
    /// How many were sent.
    sent: u64,
    /// The clock, of which it may take long to find out how fast it is.
    clock: Clock,
}

impl<'a> Sender<'a> {
    /// Waits for the other one.
    fn new(mut device: Device<'a>) -> Result<Self, Wrong> {
        if device.sleeps || silence() != 0 {
            device.put(Packet { to: ADDRESS, from: device.mac, kind: HELLO, number: 0, bytes: SHORTEST })?;
            device.send()?;
        }
        let hello = bare::wait_for(&mut device, HELLO)?;
        let bytes = options::number("bytes", SHORTEST);
        let packet = Packet { to: hello.from, from: device.mac, kind: DATA, number: 0, bytes };
        if device.has_pairs() {
            // The answer tells the device by which pair the other one wants what follows.
            device.put(Packet { kind: MARK, ..packet })?;
            device.send()?;
            bare::wait_for(&mut device, COUNT)?;
        }
        let (packets, segments) = (options::number("packets", 1), options::get("segments").is_some());
        let (pause, clock) = (silence().max(AWAY), clock::clock());
        Ok(Self { device, packet, packets, segments, pause, sent: 0, clock })
    }

    fn measure(self, row: &str) -> Result<(), Wrong> {
        let Self { mut device, packet, sent, .. } = row::measure(row, self)?;
        device.put(Packet { kind: END, number: LAST, ..packet })?;
        device.send()?;
        let came = bare::wait_for(&mut device, COUNT)?;
        if came.number == sent { Ok(()) } else { Err("packets were lost") }
    }
}

impl row::Driver for Sender<'_> {
    /// Sends packets; behind one to a receiver that sleeps another one comes back.
    fn operate(&mut self) -> Result<(), Wrong> {
        for number in self.sent..self.sent + self.packets {
            let packet = Packet { number, ..self.packet };
            if self.segments { self.device.put_segment(packet)? } else { self.device.put(packet)? }
        }
        self.device.send()?;
        self.sent += self.packets;
        match self.device.sleeps {
            true => bare::wait_for(&mut self.device, DATA).map(drop),
            false => Ok(()),
        }
    }

    /// Leaves the other one time, unless its packet has come. What it does then may take long in an emulator that runs its CPUs in turn, so it has its turn twice
    /// more.
    fn pause(&mut self) {
        if !self.device.sleeps {
            self.clock.wait(self.pause, || false);
            (self.clock.relax)();
            (self.clock.relax)();
        }
    }

    /// Every second packet is the other one's, if that answers.
    fn at_once(&self) -> u64 {
        if self.device.sleeps { 2 } else { 1 }
    }
}
