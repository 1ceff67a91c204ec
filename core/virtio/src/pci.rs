// SPDX-License-Identifier: Apache-2.0 OR MIT
//! virtio over PCI (section 4.1), without what drivers of before virtio 1.0 need.
//!
//! The function itself belongs to a [bus](turnstile_pci::bus); the device has what is behind its BARs. So each may be where it
//! suits: what the device needs of the function is MSI-X's [`Control`].

mod build;
mod common;
mod window;

pub use build::{BAR_MSIX, BAR_VIRTIO, Kind, NOTIFICATIONS};

use turnstile_pci::function::{Changed, Function};
use turnstile_pci::msix::{Control, Message, Msix};

use crate::config::Configuration;
use crate::features::{Features, Requirement};
use crate::registers::{Effect, Isr, Registers};
use build::{Region, pending_offset};

/// What follows from a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "device and interrupt controller must act on it"]
pub struct Outcome {
    /// What the device must do.
    pub effect: Option<Effect>,
    /// A message that goes out.
    pub message: Option<Message>,
    /// What has changed in the function's header.
    pub changed: Changed,
}

/// What is behind the BARs of a device with `Q` queues and `V` vectors of MSI-X.
#[derive(Clone, Debug)]
pub struct Device<const Q: usize, const V: usize, C> {
    /// Status, features, queues.
    pub registers: Registers<Q>,
    /// The configuration.
    pub config: C,
    msix: Msix<V>,
    /// [`Kind::places`].
    places: u16,
}

impl<const Q: usize, const V: usize, C: Configuration> Device<Q, V, C> {
    /// Makes a device with so many [places](Kind::places); [`Kind::function`] makes the function that leads to it.
    pub const fn new(registers: Registers<Q>, config: C, places: u16) -> Self {
        Self { registers, config, msix: Msix::new(), places }
    }

    /// How many words the state has, without that of the configuration.
    pub const WORDS: usize = Registers::<Q>::WORDS + Msix::<V>::WORDS;

    /// Returns the state, [`Device::WORDS`] words, for who keeps it over a crash.
    pub fn save(&self) -> impl Iterator<Item = u64> + '_ {
        self.registers.save().chain(self.msix.save())
    }

    /// Makes a device with a state that was saved: the device's own features and sizes of queues are those of [`Registers::new`].
    pub fn restore(
        offered: Features,
        requirements: &'static [Requirement],
        sizes: [u16; Q],
        (config, places): (C, u16),
        words: impl IntoIterator<Item = u64>,
    ) -> Self {
        let mut words = words.into_iter();
        let registers = words.by_ref().take(Registers::<Q>::WORDS);
        let registers = Registers::restore(offered, requirements, sizes, registers);
        Self { registers, config, msix: Msix::restore(words), places }
    }

    /// Reads `size` bytes at `offset` of a BAR. What is not there reads as zero. Reading the ISR clears it.
    pub fn read(&mut self, bar: u8, offset: u64, size: u8) -> u64 {
        if bar == BAR_MSIX {
            return match offset.checked_sub(pending_offset(V)) {
                Some(offset) => self.msix.read_pending(offset, size),
                None => self.msix.read_table(offset, size),
            };
        }
        match Region::of(bar, offset) {
            Some((Region::Common, offset)) => common::read(&self.registers, self.places, offset, size),
            Some((Region::Isr, 0)) if matches!(size, 1 | 2 | 4) => {
                let isr = self.registers.isr();
                self.registers.acknowledge(isr);
                isr.bits().into()
            }
            Some((Region::Config, offset)) => self.config.read(offset, size),
            _ => 0,
        }
    }

    /// Writes `size` bytes at `offset` of a BAR. What is not there ignores it.
    pub fn write(&mut self, control: Control, bar: u8, offset: u64, size: u8, value: u64) -> Outcome {
        if bar == BAR_MSIX {
            let is_table = offset < pending_offset(V);
            let message = is_table.then(|| self.msix.write_table(offset, size, value, control)).flatten();
            return Outcome { message, ..Outcome::default() };
        }
        let effect = match Region::of(bar, offset) {
            Some((Region::Common, offset)) => common::write(&mut self.registers, V, offset, size, value),
            Some((Region::Config, offset)) => {
                self.config.write(offset, size, value).then_some(Effect::Configured)
            }
            Some((Region::Notify, offset)) => {
                let place = (offset / 4) as u16;
                // Where queues share a place, the driver says which one it means.
                let number = if Q > usize::from(self.places) { value as u16 } else { place };
                if number % self.places.max(1) == place { self.registers.notify(number) } else { None }
            }
            _ => None,
        };
        Outcome { effect, ..Outcome::default() }
    }

    /// Reads `size` bytes at `offset` of the function's configuration space, in which a window leads to the BARs.
    pub fn read_config(&mut self, function: &Function, offset: u16, size: u8) -> u32 {
        match window::access(function, offset, size) {
            Some((bar, offset)) => self.read(bar, offset, size) as u32,
            None => function.read(offset, size),
        }
    }

    /// Writes `size` bytes at `offset` of the function's configuration space, in which a window leads to the BARs. If capabilities
    /// or the command have changed, [`Device::settle`] is next.
    pub fn write_config(&mut self, function: &mut Function, offset: u16, size: u8, value: u32) -> Outcome {
        match window::access(function, offset, size) {
            Some((bar, offset)) => self.write(function.msix(), bar, offset, size, value.into()),
            None => Outcome { changed: function.write(offset, size, value), ..Outcome::default() },
        }
    }

    /// Delivers what was pending and no longer is masked, after MSI-X's control may have changed.
    pub fn settle(&mut self, control: Control, deliver: impl FnMut(Message)) {
        self.msix.settle(control, deliver);
    }

    /// A queue has used buffers: returns the message to deliver. Without MSI-X the line is high instead.
    #[inline] // On the path of every interrupt.
    #[must_use = "a message that is not delivered is lost"]
    pub fn raise_queue(&mut self, control: Control, number: u16) -> Option<Message> {
        let vector = self.registers.queue(number)?.vector();
        self.raise(control, vector, Isr::QUEUE)
    }

    /// The device changed its configuration: the driver reads it again. Returns the message to deliver.
    #[must_use = "a message that is not delivered is lost"]
    pub fn raise_config(&mut self, control: Control) -> Option<Message> {
        if !self.registers.change() {
            return None;
        }
        self.raise(control, self.registers.config_vector(), Isr::CONFIG)
    }

    /// The device cannot go on. Returns the message to deliver.
    #[must_use = "a message that is not delivered is lost"]
    pub fn fail(&mut self, control: Control) -> Option<Message> {
        if !self.registers.fail() {
            return None;
        }
        self.raise(control, self.registers.config_vector(), Isr::CONFIG)
    }

    /// Whether INTx is wanted; [`Function::interrupt`] says whether it is asserted.
    pub const fn line(&self) -> bool {
        !self.registers.isr().is_empty()
    }

    /// Resets it with its bus: MSI-X, too.
    pub fn reset(&mut self) -> Effect {
        self.msix.reset();
        self.registers.reset();
        Effect::Reset
    }

    fn raise(&mut self, control: Control, vector: u16, reason: Isr) -> Option<Message> {
        if control.enabled {
            // A vector that there is not, which includes none, tells nobody.
            return self.msix.trigger(vector, control);
        }
        self.registers.raise(reason);
        None
    }
}
