// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a controller consists of.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use turnstile_pci::bar::Bar;
use turnstile_pci::function::{Function, Identity};

use super::queues::Queues;
use super::shape::Shape;
use crate::platter::Platter;
use crate::slot::Face;

/// How many bytes its BAR has.
const LENGTH: u64 = 0x4000;

/// The registers that can be written, and what follows from them.
#[derive(Debug, Default)]
pub(super) struct Registers {
    pub(super) configuration: u32,
    pub(super) attributes: u32,
    pub(super) submission: u64,
    pub(super) completion: u64,
    pub(super) ready: bool,
    pub(super) fatal: bool,
    /// How often the status is read until RDY is as CC.EN.
    pub(super) turning: Option<u32>,
}

/// A controller with a disk.
#[derive(Debug)]
pub struct Nvme {
    pub(super) face: Face,
    pub(super) shape: Shape,
    pub(super) registers: RefCell<Registers>,
    pub(super) queues: RefCell<Queues>,
    /// What is on the disk.
    pub platter: Platter,
    /// It keeps commands of its I/O queues.
    pub holds: Cell<bool>,
    /// How often its status is read until it is ready, or its reset has ended. With the largest number, it never is.
    pub slowness: Cell<u32>,
    /// What it says instead, by structure and offset.
    pub identified: RefCell<BTreeMap<(u8, u16), u8>>,
    /// What it answers to commands without doing them: by queue and operation.
    pub statuses: RefCell<BTreeMap<(u16, u8), u16>>,
    /// The next completion has this tag.
    pub wrong_tag: Cell<Option<u16>>,
    /// The next completion names this submission queue.
    pub wrong_queue: Cell<Option<u16>>,
    /// The next completion has the phase tag of before.
    pub wrong_phase: Cell<bool>,
    /// A reset with completions that the driver has not taken leaves its pin high for ever.
    pub keeps_pin: Cell<bool>,
    /// It has done so.
    pub(super) has_kept: Cell<bool>,
    /// Interrupts are lost.
    pub mute: Cell<bool>,
}

impl Nvme {
    /// Makes one with a disk of so many sectors.
    pub fn new(shape: Shape, sectors: u64) -> Self {
        let mut function = Function::new(&Identity {
            vendor: 0x1b36,
            device: 0x0010,
            revision: 2,
            class: 0x01_0802,
            subsystem_vendor: 0x1af4,
            subsystem: 0x1100,
            interrupt_pin: true,
        });
        let bar = Bar::Memory64 { size: LENGTH, prefetchable: false };
        function.add_bar(0, bar).expect("it has room");
        Self {
            face: Face::new(function, [LENGTH, 0, 0, 0, 0, 0]),
            shape,
            registers: RefCell::default(),
            queues: RefCell::default(),
            platter: Platter::new(sectors),
            holds: Cell::new(false),
            slowness: Cell::new(0),
            identified: RefCell::default(),
            statuses: RefCell::default(),
            wrong_tag: Cell::new(None),
            wrong_queue: Cell::new(None),
            wrong_phase: Cell::new(false),
            keeps_pin: Cell::new(false),
            has_kept: Cell::new(false),
            mute: Cell::new(false),
        }
    }
}
