// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The network device of a member. What its driver does with the queues of packets is noted for the switch, which has them.

use core::cmp::Ordering;

use turnstile_net::settings::Settings;
use turnstile_service_rt::MEMBER_QUEUES;
use turnstile_service_rt::port::MAX_PAIRS;
use turnstile_service_virtio::{Broken, Model, Rest, Served, Serves};
use turnstile_virtio::config::{Configuration, NETWORK, Network, SPACE};
use turnstile_virtio::device::Queue;
use turnstile_virtio::features::{Features, Requirement};
use turnstile_virtio::memory::Memory;
use turnstile_virtio::pci::Kind;
use turnstile_virtio::ring::{Layout, Options};

/// The most pairs of queues for packets.
pub const PAIRS: usize = MAX_PAIRS as usize;
/// In how many places a driver notifies its queues: each member has so many bits of doorbells.
pub const PLACES: u16 = MEMBER_QUEUES as u16;
/// Pairs of queues for packets, and behind them one for commands.
pub const QUEUES: usize = 2 * PAIRS + 1;
/// One for each queue, and one for the configuration.
pub const VECTORS: usize = QUEUES + 1;
/// Descriptors of a queue of packets. The first of each pair holds many buffers for a large packet.
const PACKETS: u16 = 256;
/// Descriptors of the queue of commands.
const COMMANDS: u16 = 64;
/// How many descriptors a command has at most: Linux uses four.
const COMMAND_BUFFERS: u32 = 16;

/// What is done with a queue of packets.
#[derive(Clone, Copy)]
pub enum Change {
    /// The driver has enabled it; perhaps an earlier life has left it.
    Begin {
        /// Where it is.
        layout: Layout,
        /// What was negotiated.
        options: Options,
        /// It is taken up where it was left.
        left: bool,
    },
    /// Its memory is the driver's again.
    Forget,
}

/// What the driver reads, and how many pairs of queues it has in use, which is kept over a crash.
#[derive(Clone, Copy, Debug)]
pub struct State {
    /// What the driver reads.
    pub network: Network,
    /// How many pairs of queues receive.
    pub pairs: u16,
}

impl Configuration for State {
    const LENGTH: usize = Network::LENGTH;

    fn image(&self) -> [u8; SPACE] {
        self.network.image()
    }
}

/// What the driver has agreed to.
#[derive(Clone, Copy)]
pub struct Agreed {
    /// The features.
    pub features: Features,
    /// How many pairs of queues receive, as an earlier life may have been told.
    pub pairs: u16,
}

/// What is to be done.
#[derive(Clone, Copy)]
pub struct Notes {
    /// The driver is ready, with these features: before the changes.
    pub agreed: Option<Agreed>,
    /// Of each queue of packets.
    pub changes: [Option<Change>; 2 * PAIRS],
    /// A bit for each queue that has something to do, perhaps.
    pub rung: u32,
}

impl Notes {
    /// Nothing.
    pub const NONE: Self = Self { agreed: None, changes: [None; 2 * PAIRS], rung: 0 };
}

/// A network device.
pub struct Port {
    /// What it is.
    pub settings: Settings,
    /// How many pairs of queues its driver knows of: without MQ there is one.
    pub pairs: u16,
    /// What the switch is to do for it.
    pub notes: Notes,
    /// The queue of commands.
    pub commands: Option<Queue>,
    /// An earlier life may owe an interrupt of it.
    pub owed: bool,
}

impl Port {
    /// A device without an address.
    pub const NEW: Self = Self::new([0; 6], 1);

    /// A device with an address and pairs of queues.
    pub const fn new(mac: [u8; 6], pairs: u16) -> Self {
        let settings = Settings { pairs, ..Settings::new(mac) };
        Self { settings, pairs: 1, notes: Notes::NONE, commands: None, owed: false }
    }

    /// The number of the queue of commands: behind all pairs that the driver knows of (section 5.1.2).
    pub const fn commands_at(&self) -> u16 {
        2 * self.pairs
    }
}

/// What a queue is for.
enum Role<'a> {
    /// Packets, and what is done with it.
    Packets(&'a mut Option<Change>),
    /// Commands.
    Commands,
    /// Nothing, without MQ.
    None,
}

impl Port {
    /// What a queue is for.
    fn role(&mut self, number: u16) -> Role<'_> {
        let commands = self.commands_at();
        match self.notes.changes.get_mut(usize::from(number)).filter(|_| number < commands) {
            Some(change) => Role::Packets(change),
            None if number == commands => Role::Commands,
            None => Role::None,
        }
    }
}

impl Model<QUEUES> for Port {
    type Configuration = State;
    const KIND: Kind = Kind { device: NETWORK, class: 0x02_0000, interrupt_pin: false, places: PLACES };
    const SIZES: [u16; QUEUES] = [PACKETS; QUEUES];
    const REQUIREMENTS: &'static [Requirement] = Network::REQUIREMENTS;

    fn features(&self) -> Features {
        self.settings.features()
    }

    fn sizes(&self) -> [u16; QUEUES] {
        let commands = 2 * usize::from(self.settings.pairs);
        core::array::from_fn(|number| match number.cmp(&commands) {
            Ordering::Less => PACKETS,
            Ordering::Equal => COMMANDS,
            Ordering::Greater => 0,
        })
    }

    fn configuration(&self) -> State {
        State { network: self.settings.configuration(true), pairs: 1 }
    }

    fn written(state: &State) -> u64 {
        state.pairs.into()
    }

    fn write_again(state: &mut State, written: u64) {
        state.pairs = (written as u16).clamp(1, state.network.max_pairs);
    }

    fn agree(&mut self, features: Features, state: &State) {
        self.pairs = if features.contains(Network::MQ) { self.settings.pairs } else { 1 };
        self.notes.agreed = Some(Agreed { features, pairs: state.pairs.min(self.pairs) });
    }

    fn forget(&mut self, number: u16) {
        self.notes.rung &= !(1 << number);
        match self.role(number) {
            Role::Packets(change) => *change = Some(Change::Forget),
            Role::Commands => self.commands = None,
            Role::None => {}
        }
    }
}

impl<M: Memory> Serves<QUEUES, M> for Port {
    fn begin(
        &mut self,
        number: u16,
        memory: &M,
        layout: Layout,
        options: Options,
        left: bool,
    ) -> Result<(), Broken> {
        self.notes.rung |= 1 << number;
        match self.role(number) {
            Role::Packets(change) => {
                *change = Some(Change::Begin { layout, options, left });
                return Ok(());
            }
            Role::Commands => {}
            // The driver knows nothing of it.
            Role::None => return Ok(()),
        }
        self.owed = left;
        self.commands = Some(match left {
            true => Queue::resume(memory, layout, options, COMMAND_BUFFERS).map_err(|_| Broken)?,
            false => Queue::new(layout, options, COMMAND_BUFFERS),
        });
        Ok(())
    }

    fn serve(&mut self, number: u16, _: &M, _: &mut u32) -> Result<Served, Broken> {
        self.notes.rung |= 1 << number;
        Ok(Served { interrupt: false, rest: Rest::Idle })
    }
}
