// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A PCI device of the machine, as its driver reaches it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use turnstile_pci::function::Function;
use turnstile_pci::msix::Control;
use turnstile_virtio::driver::{Bus, pci};
use turnstile_virtio::memory::{Memory, Outside};

use crate::ram::Ram;

/// Memory as the device reaches it: whatever becomes of its driver.
pub(crate) struct Dma<'a>(pub(crate) &'a Ram);

impl Dma<'_> {
    /// Returns the memory with these bytes, and where they are in it.
    fn find(&self, address: u64, length: u64) -> Result<(&Ram, u64), Outside> {
        if self.0.contains(address, length) {
            return Ok((self.0, address));
        }
        let lent = self.0.lent.get().and_then(|(from, ram)| {
            let inside = Ram::BASE + address.checked_sub(from)?;
            ram.contains(inside, length).then_some((ram, inside))
        });
        lent.ok_or(Outside { address })
    }
}

impl Memory for Dma<'_> {
    fn contains(&self, address: u64, length: u64) -> bool {
        self.find(address, length).is_ok()
    }

    fn load(&self, address: u64) -> Result<u16, Outside> {
        self.read_u16(address)
    }

    fn store(&self, address: u64, value: u16) -> Result<(), Outside> {
        self.write(address, &value.to_le_bytes())
    }

    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), Outside> {
        let (ram, address) = self.find(address, bytes.len() as u64)?;
        bytes.copy_from_slice(&ram.get(address, bytes.len()));
        Ok(())
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Outside> {
        let (ram, address) = self.find(address, bytes.len() as u64)?;
        ram.put(address, bytes);
        Ok(())
    }

    fn fence(&self) {}
}

/// What a device shows of itself, and what tests change and count there.
#[derive(Debug)]
pub struct Face {
    function: RefCell<Function>,
    /// Bytes of its BARs.
    lengths: [u64; 6],
    /// What the configuration space has instead of what it should.
    pub patches: RefCell<BTreeMap<u16, u8>>,
    /// What registers read as, by their offsets in [`Behind::BAR`].
    pub stuck: RefCell<BTreeMap<u64, u32>>,
    /// How many interrupts it has sent.
    pub interrupts: Cell<u32>,
    /// How often it was notified.
    pub notified: Cell<u32>,
    /// How often a driver has accessed what it should not, or broken a rule.
    pub strays: Cell<u32>,
}

impl Face {
    /// That of a function whose BARs are so long: it decodes them, and reaches memory.
    pub(crate) fn new(mut function: Function, lengths: [u64; 6]) -> Self {
        let _ = function.write(4, 2, 6);
        Self {
            function: RefCell::new(function),
            lengths,
            patches: RefCell::default(),
            stuck: RefCell::default(),
            interrupts: Cell::new(0),
            notified: Cell::new(0),
            strays: Cell::new(0),
        }
    }

    /// What MSI-X is set to.
    pub(crate) fn control(&self) -> Control {
        self.function.borrow().msix()
    }

    /// Takes note of an interrupt, if it is one.
    pub(crate) fn count(&self, interrupt: bool) {
        self.interrupts.update(|count| count + u32::from(interrupt));
    }

    /// Takes note of what a driver should not have done, if it is that.
    pub(crate) fn blame(&self, wrong: bool) {
        self.strays.update(|strays| strays + u32::from(wrong));
    }

    /// Says whether an access is one that a driver should make.
    fn is_sound(&self, bar: u8, offset: u64, size: u8) -> bool {
        let length = self.lengths.get(usize::from(bar)).copied().unwrap_or(0);
        let sound = matches!(size, 1 | 2 | 4)
            && offset.is_multiple_of(size.into())
            && offset.checked_add(size.into()).is_some_and(|end| end <= length);
        self.blame(!sound);
        sound
    }
}

/// What is behind the registers of a device.
pub trait Behind {
    /// The BAR whose registers can be [stuck](Face::stuck).
    const BAR: u8;

    /// What it shows.
    fn face(&self) -> &Face;

    /// Reads a register, which is there.
    fn read(&self, ram: &Ram, bar: u8, offset: u64, size: u8) -> u32;

    /// Writes a register, which is there. The driver's memory is `ram`.
    fn write(&self, ram: &Ram, bar: u8, offset: u64, size: u8, value: u32);
}

/// A device where it reaches memory.
#[derive(Debug)]
pub struct Slot<'a, D> {
    pub(crate) device: &'a D,
    pub(crate) ram: &'a Ram,
}

impl<D: Behind> pci::Function for Slot<'_, D> {
    fn configuration(&self, offset: u16, size: u8) -> u32 {
        let face = self.device.face();
        let bytes = (offset..).take(size.into()).map(|at| {
            let patch = face.patches.borrow().get(&at).copied();
            patch.map_or_else(|| face.function.borrow().read(at, 1), u32::from)
        });
        bytes.collect::<Vec<_>>().into_iter().rev().fold(0, |value, byte| value << 8 | byte)
    }

    fn length(&self, bar: u8) -> u64 {
        self.device.face().lengths.get(usize::from(bar)).copied().unwrap_or(0)
    }

    fn read(&self, bar: u8, offset: u64, size: u8) -> u32 {
        let face = self.device.face();
        if !face.is_sound(bar, offset, size) {
            return u32::MAX;
        }
        let stuck = face.stuck.borrow().get(&offset).copied().filter(|_| bar == D::BAR);
        stuck.unwrap_or_else(|| self.device.read(self.ram, bar, offset, size))
    }

    fn write(&self, bar: u8, offset: u64, size: u8, value: u32) {
        if self.device.face().is_sound(bar, offset, size) && self.ram.fuse.step() {
            self.device.write(self.ram, bar, offset, size, value);
        }
    }
}

impl<D: Behind> Bus for Slot<'_, D> {
    type Function = Self;
    type Memory = Ram;

    fn function(&self) -> &Self {
        self
    }

    fn memory(&self) -> &Ram {
        self.ram
    }

    /// It stands still: no driver of these devices waits.
    fn time(&self) -> u64 {
        0
    }
}
