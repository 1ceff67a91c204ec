// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A virtio device of the machine behind PCI, without what it does.

use std::cell::RefCell;
use std::ops::Deref;

use turnstile_virtio::config::Configuration;
use turnstile_virtio::features::Features;
use turnstile_virtio::pci::{BAR_MSIX, BAR_VIRTIO, Device, Kind, Outcome};
use turnstile_virtio::registers::{Effect, Registers};
use turnstile_virtio::ring::{Layout, Options};

use crate::ram::Ram;
use crate::slot::{Dma, Face};

/// Bytes of its BARs.
const LENGTHS: [u64; 6] = [0, 0x1000, 0, 0, 0x4000, 0];
/// Where the common structure's status is.
const STATUS: u64 = 0x14;

/// The function, the registers and the interrupts of a device with `Q` queues.
#[derive(Debug)]
pub struct Front<const Q: usize, C> {
    face: Face,
    device: RefCell<Device<Q, 1, C>>,
}

impl<const Q: usize, C: Configuration> Front<Q, C> {
    /// Makes it: its driver is to use MSI-X or its pin.
    pub(crate) fn new(kind: Kind, registers: Registers<Q>, config: C, msix: bool) -> Self {
        let mut function = kind.function(Q as u16, C::LENGTH as u32, 1).expect("it has room");
        let mut device = Device::new(registers, config, kind.places);
        if msix {
            let mut at = function.read(0x34, 1) as u16;
            while function.read(at, 1) != 0x11 {
                at = function.read(at + 1, 1) as u16;
            }
            let _ = function.write(at + 2, 2, 0x8000);
            for (at, word) in [(0, 0xfee0_0000), (4, 0), (8, 0x30), (12, 0)] {
                let Outcome { message, .. } = device.write(function.msix(), BAR_MSIX, at, 4, word);
                assert_eq!(message, None);
            }
        }
        Self { face: Face::new(function, LENGTHS), device: RefCell::new(device) }
    }

    /// Whether its driver is ready.
    pub fn runs(&self) -> bool {
        self.device.borrow().registers.is_running()
    }

    /// The features that were agreed on.
    pub fn features(&self) -> Features {
        self.device.borrow().registers.features()
    }

    /// It cannot go on.
    pub fn fail(&self) {
        let control = self.face.control();
        let message = self.device.borrow_mut().fail(control);
        self.interrupt(message.is_some());
    }

    /// A queue wants to interrupt, or not.
    pub(crate) fn raise(&self, wanted: bool, number: usize) {
        if wanted {
            let control = self.face.control();
            let message = self.device.borrow_mut().raise_queue(control, number as u16);
            self.interrupt(message.is_some());
        }
    }

    /// Takes note of an interrupt: a message, or a pin that is high.
    fn interrupt(&self, message: bool) {
        let line = self.device.borrow().line();
        self.face.count(message || line);
    }

    /// Where a queue is that its driver has enabled, and what was agreed on about it.
    pub(crate) fn queue(&self, ram: &Ram, number: u16) -> (Layout, Options) {
        let device = self.device.borrow();
        let queue = device.registers.queue(number).expect("it is enabled");
        let layout = queue.layout(&Dma(ram)).expect("it is in memory");
        (layout, Options::from(device.registers.features()))
    }

    pub(crate) fn read(&self, bar: u8, offset: u64, size: u8) -> u32 {
        self.device.borrow_mut().read(bar, offset, size) as u32
    }

    pub(crate) fn write(&self, bar: u8, offset: u64, size: u8, value: u32) -> Option<Effect> {
        let control = self.face.control();
        let outcome = self.device.borrow_mut().write(control, bar, offset, size, value.into());
        assert_eq!(outcome.message, None);
        // A reset is done whatever the status then reads as.
        let is_reset = (offset, value) == (STATUS, 0);
        assert!(!is_reset || outcome.effect == Some(Effect::Reset) || bar != BAR_VIRTIO);
        outcome.effect
    }
}

impl<const Q: usize, C> Deref for Front<Q, C> {
    type Target = Face;

    fn deref(&self) -> &Face {
        &self.face
    }
}
