// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Network cards of virtio 1.0 and later (section 5.1), those included that drivers of before may use, too.

use turnstile_virtio::config::Network;
use turnstile_virtio::driver::pci::{Bell, Device, Function};
use turnstile_virtio::features::Features;
use turnstile_virtio::memory::Memory;
use turnstile_virtio::registers::Isr;
use turnstile_virtio::ring::{Buffer, Options};

use crate::card::{Bus, Card, Failure, HEADROOM};
use crate::ring::{self, Ring};

/// Vendor and device of a function, in the first word of its configuration space (section 4.1.2).
const MODERN: u32 = 0x1041_1af4;
const TRANSITIONAL: u32 = 0x1000_1af4;

/// Queues, without MQ.
const RECEIVE: u16 = 0;
const SEND: u16 = 1;
const COMMANDS: u16 = 2;

/// No offloads: what is on the wire is whole.
const WANTED: Features =
    Network::MAC.union(Network::CTRL_VQ).union(Network::CTRL_RX).union(Features::EVENT_IDX);

/// The command that all packets are received (section 5.1.6.5.1), and where its answer is behind it.
const PROMISCUOUS: [u8; 3] = [0, 0, 1];
const ANSWER: u64 = 3;
/// What the answer is before the card has written it.
const UNANSWERED: u8 = 0xff;
/// Descriptors of the queue of commands, behind which the command is in the same page.
const COMMAND_SIZE: u16 = 8;
const COMMAND: u64 = ring::BYTES - 16;
/// Where the header says how many buffers a packet has: none, of a packet that is sent (section 5.1.6.2.1).
const BUFFERS: u64 = 10;

/// A queue, and where the card is notified of it.
#[derive(Debug)]
struct Rung<const N: usize> {
    ring: Ring<N>,
    bell: Bell,
}

impl<const N: usize> Rung<N> {
    fn new<B: Bus>(
        bus: &B,
        device: &Device,
        number: u16,
        options: Options,
        at: u64,
    ) -> Result<Self, Failure> {
        let size = device.size(bus.function(), number, N as u16)?;
        let layout = Ring::<N>::layout(bus.memory(), size, at)?;
        let ring = Ring::new(bus.memory(), layout, options)?;
        Ok(Self { ring, bell: device.set_up(bus.function(), number, &layout)? })
    }

    fn flush<B: Bus>(&mut self, bus: &B, device: &Device) -> Result<(), Failure> {
        if self.ring.publish(bus.memory())? {
            device.notify(bus.function(), self.bell);
        }
        Ok(())
    }
}

/// A network card with up to `N` buffers each way.
#[derive(Debug)]
pub struct Virtio<const N: usize> {
    device: Device,
    mac: Option<[u8; 6]>,
    receive: Rung<N>,
    send: Rung<N>,
    commands: Option<Rung<{ COMMAND_SIZE as usize }>>,
    /// Where the command is.
    command: u64,
    is_promiscuous: bool,
}

impl<const N: usize> Virtio<N> {
    /// Whether the card has said that it receives packets for all addresses. Some do so without being asked.
    pub const fn is_promiscuous(&self) -> bool {
        self.is_promiscuous
    }

    fn start<B: Bus>(bus: &B, device: Device, at: u64) -> Result<Self, Failure> {
        let features = device.begin(bus.function(), WANTED)?;
        let options = Options { indirect: false, event_idx: features.contains(Features::EVENT_IDX) };
        let mac = match features.contains(Network::MAC) {
            true => device.config(bus.function()),
            false => None,
        };
        let receive = Rung::new(bus, &device, RECEIVE, options, at)?;
        let send = Rung::new(bus, &device, SEND, options, at + ring::BYTES)?;
        let page = at + 2 * ring::BYTES;
        let commands = match features.contains(Network::CTRL_VQ | Network::CTRL_RX) {
            true => Some(Rung::new(bus, &device, COMMANDS, options, page)?),
            false => None,
        };
        device.start(bus.function())?;
        let command = page + COMMAND;
        let mut card = Self { device, mac, receive, send, commands, command, is_promiscuous: false };
        card.listen(bus)?;
        Ok(card)
    }

    /// Asks for all packets: VMs have addresses of their own. The answer comes with an interrupt.
    fn listen<B: Bus>(&mut self, bus: &B) -> Result<(), Failure> {
        let Some(commands) = &mut self.commands else { return Ok(()) };
        let [class, command, on] = PROMISCUOUS;
        bus.memory().write(self.command, &[class, command, on, UNANSWERED])?;
        let asked = Buffer { address: self.command, length: ANSWER as u32, writable: false };
        let answer = Buffer { address: self.command + ANSWER, length: 1, writable: true };
        commands.ring.add_chain(bus.memory(), 0, &[asked, answer])?;
        commands.flush(bus, &self.device)
    }

    /// Looks for the answer.
    fn answered<B: Bus>(&mut self, bus: &B) -> Result<(), Failure> {
        let Some(commands) = &mut self.commands else { return Ok(()) };
        if commands.ring.take(bus.memory())?.is_some() {
            let mut answer = [UNANSWERED];
            bus.memory().read(self.command + ANSWER, &mut answer)?;
            self.is_promiscuous = answer == [0];
        }
        Ok(())
    }
}

impl<const N: usize> Card for Virtio<N> {
    const BYTES: u64 = 3 * ring::BYTES;

    fn begin<B: Bus>(bus: &B, at: u64) -> Result<Self, Failure> {
        if !matches!(bus.function().configuration(0, 4), MODERN | TRANSITIONAL) {
            return Err(Failure::Unknown);
        }
        let device = Device::find(bus.function())?;
        let end = device.clone();
        Self::start(bus, device, at).inspect_err(|_| {
            // It is not to go on with what is half set up.
            let _ = end.reset(bus.function());
        })
    }

    fn mac(&self) -> Option<[u8; 6]> {
        self.mac
    }

    fn room_to_receive(&self) -> u16 {
        self.receive.ring.room()
    }

    fn offer<B: Bus>(&mut self, bus: &B, number: u16, address: u64, length: u32) -> Result<(), Failure> {
        Ok(self.receive.ring.add(bus.memory(), number, Buffer { address, length, writable: true })?)
    }

    #[inline] // Of each packet.
    fn receive<B: Bus>(&mut self, bus: &B) -> Result<Option<(u16, u32)>, Failure> {
        Ok(self.receive.ring.take(bus.memory())?)
    }

    fn room_to_send(&self) -> u16 {
        self.send.ring.room()
    }

    fn send<B: Bus>(&mut self, bus: &B, number: u16, address: u64, length: u32) -> Result<(), Failure> {
        const { assert!(BUFFERS + 2 == HEADROOM as u64) };
        bus.memory().write(address.wrapping_add(BUFFERS), &[0; 2])?;
        Ok(self.send.ring.add(bus.memory(), number, Buffer { address, length, writable: false })?)
    }

    fn sent<B: Bus>(&mut self, bus: &B) -> Result<Option<u16>, Failure> {
        Ok(self.send.ring.take(bus.memory())?.map(|(number, _)| number))
    }

    fn flush<B: Bus>(&mut self, bus: &B) -> Result<(), Failure> {
        self.send.flush(bus, &self.device)?;
        self.receive.flush(bus, &self.device)
    }

    fn arm<B: Bus>(&mut self, bus: &B, sent: bool) -> Result<bool, Failure> {
        let more = match sent {
            true => self.send.ring.arm(bus.memory())?,
            false => {
                self.send.ring.suppress(bus.memory())?;
                false
            }
        };
        Ok(self.receive.ring.arm(bus.memory())? || more)
    }

    fn interrupted<B: Bus>(&mut self, bus: &B) -> Result<(), Failure> {
        let reasons = self.device.reasons(bus.function());
        if reasons == Isr::CONFIG {
            self.device.check(bus.function())?;
        }
        self.answered(bus)
    }

    fn check<B: Bus>(&self, bus: &B) -> Result<(), Failure> {
        Ok(self.device.check(bus.function())?)
    }

    fn stop<B: Bus>(self, bus: &B) {
        // One that does not end its reset has lost its memory to nobody: it is the service's own.
        let _ = self.device.reset(bus.function());
    }
}
