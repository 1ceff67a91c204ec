// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Network cards of virtio 1.0 and later (section 5.1), those included that drivers of before may use, too.

use turnstile_virtio::config::Network;
use turnstile_virtio::driver::pci::{Device, Function};
use turnstile_virtio::driver::rung::Rung;
use turnstile_virtio::features::Features;
use turnstile_virtio::memory::Memory;
use turnstile_virtio::registers::Isr;
use turnstile_virtio::ring::{Buffer, Options};

use crate::card::{Bus, Card, Failure, HEADROOM};
use crate::ring;

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

/// A network card with up to `N` buffers each way.
#[derive(Debug)]
pub struct Virtio<const N: usize> {
    device: Option<Device>,
    mac: Option<[u8; 6]>,
    receive: Rung<N>,
    send: Rung<N>,
    commands: Rung<{ COMMAND_SIZE as usize }>,
    /// Where the command is, while it is not answered.
    command: Option<u64>,
}

impl<const N: usize> Virtio<N> {
    fn device(&self) -> Result<&Device, Failure> {
        self.device.as_ref().ok_or(Failure::Unknown)
    }

    fn start<B: Bus>(&mut self, bus: &B, device: &Device, at: u64) -> Result<(), Failure> {
        let features = device.begin(bus.function(), WANTED)?;
        let options = Options { indirect: false, event_idx: features.contains(Features::EVENT_IDX) };
        let has_mac = features.contains(Network::MAC);
        self.mac = if has_mac { device.config(bus.function()) } else { None };
        let most = N as u16;
        self.receive.begin::<B, Failure>(bus, device, (RECEIVE, at, most), options)?;
        self.send.begin::<B, Failure>(bus, device, (SEND, at + ring::BYTES, most), options)?;
        let page = at + 2 * ring::BYTES;
        let has_commands = features.contains(Network::CTRL_VQ.union(Network::CTRL_RX));
        if has_commands {
            self.commands.begin::<B, Failure>(bus, device, (COMMANDS, page, COMMAND_SIZE), options)?;
        }
        device.start(bus.function())?;
        match has_commands {
            true => self.listen(bus, device, page + COMMAND),
            false => Ok(()),
        }
    }

    /// Asks for all packets: VMs have addresses of their own. The answer comes with an interrupt. Cards that cannot be asked receive all.
    fn listen<B: Bus>(&mut self, bus: &B, device: &Device, at: u64) -> Result<(), Failure> {
        let [class, command, on] = PROMISCUOUS;
        bus.memory().write(at, &[class, command, on, UNANSWERED])?;
        let asked = Buffer { address: at, length: ANSWER as u32, writable: false };
        let answer = Buffer { address: at + ANSWER, length: 1, writable: true };
        self.commands.ring.add_chain(bus.memory(), 0, &[asked, answer])?;
        self.command = Some(at);
        Ok(self.commands.flush(bus, device)?)
    }

    /// Looks for the answer.
    fn answered<B: Bus>(&mut self, bus: &B) -> Result<(), Failure> {
        let Some(command) = self.command else { return Ok(()) };
        if self.commands.ring.take(bus.memory())?.is_some() {
            let mut answer = [UNANSWERED];
            bus.memory().read(command + ANSWER, &mut answer)?;
            self.command = None;
            if answer != [0] {
                return Err(Failure::Filters);
            }
        }
        Ok(())
    }
}

/// Says whether a function is such a card, by the first word of its configuration space.
pub(crate) const fn drives(id: u32) -> bool {
    matches!(id, MODERN | TRANSITIONAL)
}

/// Finds the card.
fn find<B: Bus>(bus: &B) -> Result<Device, Failure> {
    match drives(bus.function().configuration(0, 4)) {
        true => Ok(Device::find(bus.function())?),
        false => Err(Failure::Unknown),
    }
}

impl<const N: usize> Card for Virtio<N> {
    const BYTES: u64 = 3 * ring::BYTES;
    const NEW: Self = Self {
        device: None,
        mac: None,
        receive: Rung::NEW,
        send: Rung::NEW,
        commands: Rung::NEW,
        command: None,
    };

    fn reset<B: Bus>(bus: &B) -> Result<(), Failure> {
        Ok(find(bus)?.reset(bus.function())?)
    }

    fn begin<B: Bus>(&mut self, bus: &B, at: u64) -> Result<(), Failure> {
        (self.device, self.command) = (None, None);
        let device = find(bus)?;
        self.start(bus, &device, at).inspect_err(|_| {
            // It is not to go on with what is half set up.
            let _ = device.reset(bus.function());
        })?;
        self.device = Some(device);
        Ok(())
    }

    fn settle<B: Bus>(&mut self, _: &B) -> Result<Option<u64>, Failure> {
        Ok(None)
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
        let device = self.device.as_ref().ok_or(Failure::Unknown)?;
        self.send.flush(bus, device)?;
        Ok(self.receive.flush(bus, device)?)
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
        if self.device()?.reasons(bus.function()) == Isr::CONFIG {
            self.check(bus)?;
        }
        self.answered(bus)
    }

    fn check<B: Bus>(&self, bus: &B) -> Result<(), Failure> {
        Ok(self.device()?.check(bus.function())?)
    }

    fn stop<B: Bus>(&mut self, bus: &B) {
        if let Some(device) = self.device.take() {
            // One that does not end its reset is trusted to let this memory alone, or it is at least the caller's own.
            let _ = device.reset(bus.function());
        }
    }
}
