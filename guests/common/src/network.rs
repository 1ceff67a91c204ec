// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guest that measures packets to another VM, where the same guest receives them: as `peer` on its command line says.
//!
//! Who sends rings once for `packets=` packets of `bytes=` each, and then waits a while, in which the other one takes its interrupt and them.
//! At the end that says how many have come.

mod driver;

use core::cell::RefCell;
use core::fmt::Write;

use crate::virtio::{FIRST, Function, Machine, VENDOR};
use crate::{bench, clock, options};
use driver::{ADDRESS, Device, Packet, SHORTEST, SILENCE, Wrong};

/// A network device.
const DEVICE: u16 = 0x1041;
/// What packets are: somebody is here; one of those that are measured; the end; how many of them have come.
const HELLO: u16 = 1;
const DATA: u16 = 2;
const END: u16 = 3;
const COUNT: u16 = 4;
/// How long a hello waits for an answer, in microseconds.
const PAUSE: u64 = 10_000;
/// How long the receiver may take for an operation, in microseconds.
const AWAY: u64 = 10;

/// Measures, or receives.
pub fn run(console: &mut impl Write, machine: &Machine) {
    let slot = machine.config.find(VENDOR, DEVICE).next();
    let device =
        slot.and_then(|slot| Device::start(&Function::place(machine, slot, machine.window.base + FIRST)));
    let Some(device) = device else {
        let _ = writeln!(console, "@error there is no network");
        return;
    };
    let done = match options::get("peer") {
        Some(_) => receive(device),
        None => Sender::new(device).and_then(Sender::measure),
    };
    if let Err(what) = done {
        let _ = writeln!(console, "@error {what}");
    }
}

/// Takes packets until the end.
fn receive(mut device: Device<'_>) -> Result<(), Wrong> {
    let mut packet = Packet { to: ADDRESS, from: device.mac, kind: HELLO, number: 0, bytes: SHORTEST };
    loop {
        device.put(packet)?;
        device.send()?;
        let mut count = 0;
        while let Some(came) = device.wait(if count == 0 { PAUSE } else { SILENCE })? {
            count += u64::from(came.kind == DATA && came.to == device.mac);
            if came.kind == END {
                packet = Packet { to: came.from, kind: COUNT, number: count, ..packet };
                device.put(packet)?;
                return device.send();
            }
        }
    }
}

/// Who sends.
struct Sender<'a> {
    device: RefCell<Device<'a>>,
    /// A packet as it is sent.
    packet: Packet,
    /// How many are sent at once.
    packets: u64,
    /// How many were sent, or what went wrong.
    sent: RefCell<Result<u64, Wrong>>,
}

impl<'a> Sender<'a> {
    /// Waits for the other one.
    fn new(mut device: Device<'a>) -> Result<Self, Wrong> {
        let hello = device.wait(SILENCE)?.filter(|packet| packet.kind == HELLO).ok_or("nobody is there")?;
        let bytes = options::number("bytes", SHORTEST);
        let packet = Packet { to: hello.from, from: device.mac, kind: DATA, number: 0, bytes };
        let packets = options::number("packets", 1);
        Ok(Self { device: RefCell::new(device), packet, packets, sent: RefCell::new(Ok(0)) })
    }

    fn measure(self) -> Result<(), Wrong> {
        let row = options::get("row").unwrap_or("packet");
        bench::measure(
            row,
            |rounds| (0..rounds).for_each(|_| self.operate()),
            |rounds| (0..rounds).for_each(|_| wait()),
        );
        let sent = self.sent.into_inner()?;
        let mut device = self.device.into_inner();
        device.put(Packet { kind: END, ..self.packet })?;
        device.send()?;
        loop {
            let came = device.wait(SILENCE)?.ok_or("the other one does not answer")?;
            match came.kind {
                COUNT if came.number == sent => return Ok(()),
                COUNT => return Err("packets were lost"),
                _ => {}
            }
        }
    }

    /// One operation.
    #[inline(never)] // All of them ring at one place, by which the meter knows them.
    fn operate(&self) {
        let mut sent = self.sent.borrow_mut();
        *sent = sent.and_then(|sent| self.send(sent));
        wait();
    }

    fn send(&self, sent: u64) -> Result<u64, Wrong> {
        let mut device = self.device.borrow_mut();
        for number in sent..sent + self.packets {
            device.put(Packet { number, ..self.packet })?;
        }
        device.send()?;
        Ok(sent + self.packets)
    }
}

/// Leaves the other one time. What it does then may take long in an emulator that runs its CPUs in turn, so it has its turn twice
/// more.
fn wait() {
    let clock = clock::clock();
    clock.wait(AWAY, || false);
    (clock.relax)();
    (clock.relax)();
}
