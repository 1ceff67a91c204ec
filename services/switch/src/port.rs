// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The network device of a member. What its driver does with the queues of packets is noted for the switch, which has them.

use turnstile_net::settings::Settings;
use turnstile_service_virtio::{Broken, Model, Rest, Served, Serves};
use turnstile_virtio::config::{NETWORK, Network};
use turnstile_virtio::device::Queue;
use turnstile_virtio::features::{Features, Requirement};
use turnstile_virtio::memory::Memory;
use turnstile_virtio::pci::Kind;
use turnstile_virtio::ring::{Layout, Options};

/// A pair of queues for packets, and one for commands.
pub const QUEUES: usize = 3;
/// One for each queue, and one for the configuration.
pub const VECTORS: usize = QUEUES + 1;
/// The queue of commands.
pub const COMMANDS: u16 = 2;
/// Descriptors of each queue. The first of the pair holds many buffers for a large packet.
const SIZES: [u16; QUEUES] = [256, 256, 64];
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

/// What is to be done.
#[derive(Clone, Copy)]
pub struct Notes {
    /// The driver is ready, with these features: before the changes.
    pub agreed: Option<Features>,
    /// Of both queues of packets.
    pub changes: [Option<Change>; 2],
    /// A bit for each queue that has something to do, perhaps.
    pub rung: u32,
}

impl Notes {
    /// Nothing.
    pub const NONE: Self = Self { agreed: None, changes: [None; 2], rung: 0 };
}

/// A network device.
pub struct Port {
    /// What it is.
    pub settings: Settings,
    /// What the switch is to do for it.
    pub notes: Notes,
    /// The queue of commands.
    pub commands: Option<Queue>,
    /// An earlier life may owe an interrupt of it.
    pub owed: bool,
}

impl Port {
    /// A device without an address.
    pub const NEW: Self = Self::new([0; 6]);

    /// A device with an address.
    pub const fn new(mac: [u8; 6]) -> Self {
        Self { settings: Settings::new(mac), notes: Notes::NONE, commands: None, owed: false }
    }
}

impl Model<QUEUES> for Port {
    type Configuration = Network;
    const KIND: Kind = Kind { device: NETWORK, class: 0x02_0000, interrupt_pin: false };
    const SIZES: [u16; QUEUES] = SIZES;
    const REQUIREMENTS: &'static [Requirement] = Network::REQUIREMENTS;

    fn features(&self) -> Features {
        self.settings.features()
    }

    fn configuration(&self) -> Network {
        self.settings.configuration(true)
    }

    fn agree(&mut self, features: Features, _: &Network) {
        self.notes.agreed = Some(features);
    }

    fn forget(&mut self, number: u16) {
        self.notes.rung &= !(1 << number);
        match self.notes.changes.get_mut(usize::from(number)) {
            Some(change) => *change = Some(Change::Forget),
            None => self.commands = None,
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
        if let Some(change) = self.notes.changes.get_mut(usize::from(number)) {
            *change = Some(Change::Begin { layout, options, left });
            return Ok(());
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
