// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exchanges packets with the other VM, and attacks the device; that VM says which life it is, and what the first one has found.

use core::fmt::Write;

use super::attacks;
use super::driver::{COUNT, DATA, DEVICE, Device, END, HELLO, LAST, MARK, Packet, SHORTEST, SILENCE};
use crate::random::{self, Random};
use crate::virtio::ring::Wrong;
use crate::virtio::{FIRST, Function, Machine, VENDOR};

/// Where BARs are left for the next life, in the window.
const SECOND: u64 = 0x20_0000;
/// How many packets are sent at once, at most, and how often.
const MOST: u64 = 100;
const ROUNDS: u64 = 20;
/// Words of a configuration space.
const WORDS: u16 = 16;

/// Does it all; returns whether the machine is to be reset for the second life.
pub fn run(console: &mut impl Write, machine: &Machine) -> bool {
    let Some(slot) = machine.config.find(VENDOR, DEVICE).next() else {
        let _ = writeln!(console, "@error there is no network");
        return false;
    };
    let mut run = Run { machine, slot, peer: 0, sent: 0, random: random::stream(0) };
    let result = run.life(console);
    match &result {
        Ok(true) => _ = writeln!(console, "@network first life ends"),
        Ok(false) => _ = writeln!(console, "@done network failed=0"),
        Err(what) => _ = writeln!(console, "@error wrong: {what}\n@done network failed=1"),
    }
    result == Ok(true)
}

struct Run<'a> {
    machine: &'a Machine,
    slot: u8,
    /// The other one's address.
    peer: u64,
    /// How many packets it should have.
    sent: u64,
    random: Random,
}

impl<'a> Run<'a> {
    /// One life; returns whether it is the first one.
    fn life(&mut self, console: &mut impl Write) -> Result<bool, Wrong> {
        let found = (0..WORDS).fold(0_u64, |sum, word| {
            let value = (self.machine.config.read)(self.slot, 4 * word, 4);
            sum.rotate_left(5).wrapping_mul(31).wrapping_add(value.into())
        });
        let function = Function::place(self.machine, self.slot, self.machine.window.base + FIRST);
        if !function.is_new() {
            return Err("the device was used");
        }
        let mut device = Device::start(&function).ok_or("the device does not start")?;
        self.peer = wait_for(&mut device, HELLO)?.from;
        let earlier = self.ask(&mut device, MARK, found)?;
        let first = earlier == 0;
        let _ = writeln!(console, "@boot network first={first}");
        if !first && earlier != found {
            return Err("the configuration space is not as it was at first");
        }
        self.sent = self.ask(&mut device, END, 0)?;
        self.exchange(&mut device, ROUNDS)?;
        if !first {
            self.ask(&mut device, END, LAST)?;
            return Ok(false);
        }
        self.attack(console)?;
        // Left for the next life: another place, queues that run, a vector with a message.
        let function = Function::place(self.machine, self.slot, self.machine.window.base + SECOND);
        Device::start(&function).ok_or("a start after all attacks")?;
        Ok(true)
    }

    /// Does all attacks; after each the device works.
    fn attack(&mut self, console: &mut impl Write) -> Result<(), Wrong> {
        for (name, attack) in attacks::ALL {
            let _ = writeln!(console, "@attack {name}");
            attack(self.machine, self.slot, &mut self.random);
            let function = Function::place(self.machine, self.slot, self.machine.window.base + FIRST);
            let mut device = Device::start(&function).ok_or(name)?;
            // What was rung in vain may have sent something.
            self.sent = self.ask(&mut device, END, 0)?;
            self.exchange(&mut device, 1)?;
        }
        Ok(())
    }

    /// Sends packets, a few more each time, and asks whether all have come.
    fn exchange(&mut self, device: &mut Device<'a>, rounds: u64) -> Result<(), Wrong> {
        for round in 1..=rounds {
            let count = round * MOST / rounds;
            for number in 0..count {
                device.put(self.packet(device.mac, DATA, number))?;
            }
            device.send()?;
            self.sent += count;
            if self.ask(device, END, 0)? != self.sent {
                return Err("packets were lost");
            }
        }
        Ok(())
    }

    /// Asks the other one, and returns what it answers.
    fn ask(&self, device: &mut Device<'a>, kind: u16, number: u64) -> Result<u64, Wrong> {
        device.put(self.packet(device.mac, kind, number))?;
        device.send()?;
        wait_for(device, COUNT).map(|packet| packet.number)
    }

    fn packet(&self, from: u64, kind: u16, number: u64) -> Packet {
        Packet { to: self.peer, from, kind, number, bytes: SHORTEST }
    }
}

/// Waits for a packet of a kind.
pub fn wait_for(device: &mut Device<'_>, kind: u16) -> Result<Packet, Wrong> {
    loop {
        let packet = device.wait(SILENCE)?.ok_or("the other one does not answer")?;
        if packet.kind == kind {
            return Ok(packet);
        }
    }
}
