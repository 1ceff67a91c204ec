// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a driver reaches a device: as a PCI function, or by a window of registers.

use turnstile_pci::absent;
use turnstile_pci::bar::Bar;
use turnstile_pci::function::{Changed, Function};
use turnstile_pci::msix::{Message, Msix};
use turnstile_service_rt::{BARS, CONFIGURATION, MMIO};
use turnstile_virtio::config::Configuration;
use turnstile_virtio::features::{Features, Requirement};
use turnstile_virtio::mmio;
use turnstile_virtio::pci::{self, Kind, Outcome};
use turnstile_virtio::registers::{Effect, Registers};

use crate::world::World;

/// How many BARs a function has.
const BAR_COUNT: u8 = 6;
/// The words of a function's configuration space that are kept: up to 64 bytes can be written.
const SPACE: usize = 8;
/// The address of a BAR that is not decoded.
const NOWHERE: u64 = u64::MAX;
/// The vendor of a device behind MMIO: that of the functions.
const VENDOR: u32 = 0x1af4;

/// How many words the state of a device with `Q` queues and `V` vectors has, behind PCI. One behind MMIO has fewer.
pub const fn length<const Q: usize, const V: usize>() -> usize {
    SPACE + Registers::<Q>::WORDS + Msix::<V>::WORDS
}

/// What a device offers.
pub struct Offer<const Q: usize, C> {
    /// What it is.
    pub kind: Kind,
    /// What a driver may accept.
    pub features: Features,
    /// What of that only with others.
    pub requirements: &'static [Requirement],
    /// The largest sizes of its queues.
    pub sizes: [u16; Q],
    /// Its configuration.
    pub config: C,
}

/// A device with its registers.
#[expect(clippy::large_enum_variant, reason = "there is one in each service, and nowhere to box it")]
pub enum Front<const Q: usize, const V: usize, C> {
    /// A PCI function, with `V` vectors of MSI-X.
    Pci {
        /// Its configuration space.
        function: Function,
        /// What is behind its BARs.
        device: pci::Device<Q, V, C>,
        /// Where each BAR is decoded, as the hypervisor knows it.
        decoded: [u64; BAR_COUNT as usize],
    },
    /// A window of registers, and a line, of which a message to the window's address makes an edge.
    Mmio {
        /// What is in the window.
        device: mmio::Device<Q, C>,
        /// That message.
        edge: Message,
    },
}

impl<const Q: usize, const V: usize, C: Configuration> Front<Q, V, C> {
    /// Makes a device where `bars` says, with a state that was saved, or that of a reset. `None` if there can be no such function.
    pub fn new<I>(offer: Offer<Q, C>, bars: u64, saved: Option<I>) -> Option<Self>
    where
        I: Iterator<Item = u64>,
    {
        if bars & MMIO != 0 {
            let edge = Message { address: bars & !MMIO, data: 0 };
            return Some(Self::Mmio { device: window(offer, saved), edge });
        }
        let Offer { kind, features, requirements, sizes, config } = offer;
        // A device has a vector less for each queue that is not there.
        let queues = sizes.iter().rposition(|size| *size != 0).map_or(0, |last| last + 1);
        let vectors = V.saturating_sub(Q - queues);
        let mut function = kind.function(queues as u16, C::LENGTH as u32, vectors as u16).ok()?;
        let device = if let Some(mut words) = saved {
            let space: [u64; SPACE] = core::array::from_fn(|_| words.next().unwrap_or(0));
            function.restore(space);
            pci::Device::restore(features, requirements, sizes, (config, kind.places), words)
        } else {
            place(&mut function, bars);
            pci::Device::new(Registers::new(features, requirements, sizes), config, kind.places)
        };
        Some(Self::Pci { function, device, decoded: [NOWHERE; BAR_COUNT as usize] })
    }

    /// Returns the state, [`length`] words.
    pub fn save(&self) -> impl Iterator<Item = u64> + '_ {
        let (function, device, window) = match self {
            Self::Pci { function, device, .. } => (Some(function), Some(device), None),
            Self::Mmio { device, .. } => (None, None, Some(device)),
        };
        let rest = core::iter::repeat(0);
        let space =
            function.into_iter().flat_map(move |function| function.save().chain(rest.clone()).take(SPACE));
        let words = device.into_iter().flat_map(pci::Device::save);
        let registers = window.into_iter().flat_map(|device| device.registers.save());
        space.chain(words).chain(registers).chain(core::iter::repeat(0)).take(length::<Q, V>())
    }

    /// Status, features, queues.
    #[inline(always)] // An address.
    pub const fn registers(&self) -> &Registers<Q> {
        match self {
            Self::Pci { device, .. } => &device.registers,
            Self::Mmio { device, .. } => &device.registers,
        }
    }

    /// The same, to change them.
    pub const fn registers_mut(&mut self) -> &mut Registers<Q> {
        match self {
            Self::Pci { device, .. } => &mut device.registers,
            Self::Mmio { device, .. } => &mut device.registers,
        }
    }

    /// The configuration.
    pub const fn config(&self) -> &C {
        match self {
            Self::Pci { device, .. } => &device.config,
            Self::Mmio { device, .. } => &device.config,
        }
    }

    /// The same, to change it.
    pub const fn config_mut(&mut self) -> &mut C {
        match self {
            Self::Pci { device, .. } => &mut device.config,
            Self::Mmio { device, .. } => &mut device.config,
        }
    }

    /// Sends the interrupt of a queue.
    #[inline(always)] // A few moves.
    pub fn raise<W: World>(&mut self, world: &W, number: u16) {
        match self {
            Self::Pci { function, device, .. } => {
                if let Some(message) = device.raise_queue(function.msix(), number) {
                    world.message(message);
                }
            }
            Self::Mmio { device, edge } => raise_line(device, *edge, world),
        }
    }

    /// The configuration has changed: tells the driver.
    pub fn raise_config<W: World>(&mut self, world: &W) {
        let message = match self {
            Self::Pci { function, device, .. } => device.raise_config(function.msix()),
            Self::Mmio { device, edge } => device.raise_config().then_some(*edge),
        };
        message.into_iter().for_each(|message| world.message(message));
    }

    /// The device cannot go on: tells the driver.
    pub fn fail<W: World>(&mut self, world: &W) {
        let message = match self {
            Self::Pci { function, device, .. } => device.fail(function.msix()),
            Self::Mmio { device, edge } => device.fail().then_some(*edge),
        };
        message.into_iter().for_each(|message| world.message(message));
    }

    /// Reads a register.
    pub fn read(&mut self, device: u64, offset: u64, size: u8) -> u64 {
        match (self, bar(device)) {
            (Self::Mmio { device, .. }, _) => device.read(offset, size),
            (Self::Pci { device, .. }, Some(bar)) => device.read(bar, offset, size),
            (Self::Pci { function, device, .. }, None) => match u16::try_from(offset) {
                Ok(offset) if size <= 4 => device.read_config(function, offset, size).into(),
                _ => absent(4).into(),
            },
        }
    }

    /// Writes a register. Returns what the device must do.
    pub fn write<W: World>(
        &mut self,
        world: &W,
        number: u64,
        offset: u64,
        size: u8,
        value: u64,
    ) -> Option<Effect> {
        let (function, device) = match self {
            Self::Mmio { device, .. } => return device.write(offset, size, value),
            Self::Pci { function, device, .. } => (function, device),
        };
        let Outcome { effect, message, changed } = match (bar(number), u16::try_from(offset)) {
            (Some(bar), _) => device.write(function.msix(), bar, offset, size, value),
            (None, Ok(offset)) if size <= 4 => device.write_config(function, offset, size, value as u32),
            (None, _) => return None,
        };
        message.into_iter().for_each(|message| world.message(message));
        if changed.intersects(Changed::COMMAND | Changed::BARS) {
            self.announce(world);
        }
        if let Self::Pci { function, device, .. } = self
            && changed.intersects(Changed::COMMAND | Changed::CAPABILITIES)
        {
            device.settle(function.msix(), |message| world.message(message));
        }
        effect
    }

    /// Tells the hypervisor what is decoded after the service has begun anew: other vCPUs run meanwhile.
    pub fn announce_again<W: World>(&mut self, world: &W) {
        let Self::Pci { function, .. } = self else { return };
        // Whatever was decoded before. What is again, is all the time.
        let is_gone = |bar: &u8| function.bar(*bar).is_some() && function.decodes(*bar).is_none();
        for bar in (0..BAR_COUNT).filter(is_gone) {
            world.decode(bar, 0, 0);
        }
        // Twice: who finds its place taken by another one of before is nowhere, and finds it free then.
        self.announce(world);
        self.announce(world);
    }

    /// Tells the hypervisor what each BAR decodes, if that has changed. One that could not be where it should is tried again.
    fn announce<W: World>(&mut self, world: &W) {
        let Self::Pci { function, decoded, .. } = self else { return };
        let mut wanted = [NOWHERE; BAR_COUNT as usize];
        for ((bar, wanted), now) in (0..).zip(&mut wanted).zip(&mut *decoded) {
            *wanted = function.decodes(bar).map_or(NOWHERE, |addresses| addresses.start);
            // Away first, so that they may change places.
            if *wanted != *now && *now != NOWHERE {
                world.decode(bar, 0, 0);
                *now = NOWHERE;
            }
        }
        for ((bar, wanted), now) in (0..).zip(wanted).zip(decoded) {
            let size = function.bar(bar).map_or(0, Bar::size);
            if wanted != *now && world.decode(bar, wanted, size) {
                *now = wanted;
            }
        }
    }
}

/// Sends the interrupt of a device behind MMIO.
#[cold]
#[inline(never)] // So that the way of a PCI function needs no more registers.
fn raise_line<const Q: usize, C: Configuration>(
    device: &mut mmio::Device<Q, C>,
    edge: Message,
    world: &impl World,
) {
    device.raise_queue();
    world.message(edge);
}

/// Makes what is in a window of registers.
fn window<const Q: usize, C: Configuration>(
    offer: Offer<Q, C>,
    saved: Option<impl Iterator<Item = u64>>,
) -> mmio::Device<Q, C> {
    let Offer { kind, features, requirements, sizes, config } = offer;
    let registers = match saved {
        Some(words) => Registers::restore(features, requirements, sizes, words),
        None => Registers::new(features, requirements, sizes),
    };
    let is_running = registers.is_running();
    let mut device = mmio::Device::new(kind.device, VENDOR, registers, config);
    if is_running {
        // An interrupt of the earlier life may be on its way: its driver is to find a reason.
        device.raise_queue();
    }
    device
}

/// Puts the BARs at addresses, as firmware does: the large ones first, so that all are aligned.
fn place(function: &mut Function, bars: u64) {
    let mut address = bars;
    for size in (4..48).rev().map(|power| 1 << power).filter(|_| bars != 0) {
        for bar in 0..BAR_COUNT {
            if function.bar(bar).is_some_and(|bar| bar.size() == size) {
                function.place(bar, address);
                address = address.saturating_add(size);
            }
        }
    }
}

/// The BAR that a device's number means; none if that is configuration space.
fn bar(device: u64) -> Option<u8> {
    (device != CONFIGURATION).then(|| device.wrapping_sub(BARS) as u8)
}
