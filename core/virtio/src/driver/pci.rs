// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The driver's side of the transport over PCI (section 4.1).
//!
//! ```text
//! find → begin: reset, features → set_up each queue → start → notify …, interrupt: reasons
//! ```
//!
//! Nothing that the device says is relied on: each structure is within its BAR, each list that it leads through has an end here, and so has each
//! wait.

use core::fmt;

use crate::features::Features;
use crate::registers::{Isr, NO_VECTOR, Status};
use crate::ring::{Areas, Layout, MAX_SIZE};

/// A PCI function, as its driver reaches it.
///
/// Orderings: what the driver has written to memory before [`write`](Function::write) is there for the device when it sees the write, and what it
/// reads of memory behind [`read`](Function::read) is what the device had written there before it answered.
pub trait Function {
    /// Reads `size` bytes (1, 2 or 4) of the configuration space. What is not there reads as ones.
    fn configuration(&self, offset: u16, size: u8) -> u32;
    /// How many bytes of a BAR can be reached; none of one that there is not, or that is no memory.
    fn length(&self, bar: u8) -> u64;
    /// Reads `size` bytes (1, 2 or 4) at an offset of a BAR that is a multiple of that, at once. What is not there reads as ones.
    fn read(&self, bar: u8, offset: u64, size: u8) -> u32;
    /// Writes as many, at once.
    fn write(&self, bar: u8, offset: u64, size: u8, value: u32);
    /// Whether the device is to reach memory by an IOMMU alone: one that does not offer that is not driven.
    fn is_guarded(&self) -> bool {
        false
    }
}

/// Why a device cannot be driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It has not all structures of virtio 1.0, or not within its BARs.
    Structures,
    /// It does not come out of its reset.
    Reset,
    /// It is of the time before virtio 1.0, or refuses the features.
    Features,
    /// It reaches memory past the IOMMU that is to guard it: it does not offer VIRTIO_F_ACCESS_PLATFORM (section 6).
    Unguarded,
    /// It has no such queue, or does not take it.
    Queue(u16),
    /// It does not interrupt by a message, though MSI-X is enabled.
    Vector,
    /// It says that it cannot go on.
    Broken,
}

impl Failure {
    /// Says it in words.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Structures => "it lacks structures of virtio 1.0",
            Self::Reset => "it does not end its reset",
            Self::Features => "it refuses the features",
            Self::Unguarded => "it reaches memory past the IOMMU, without VIRTIO_F_ACCESS_PLATFORM",
            Self::Queue(_) => "it does not take a queue",
            Self::Vector => "it does not take a vector of MSI-X",
            Self::Broken => "it needs a reset",
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl core::error::Error for Failure {}

/// A field of the common structure (section 4.1.4.3): where it is, and how wide.
type Field = (u64, u8);

const DEVICE_SELECT: Field = (0x00, 4);
const DEVICE_FEATURES: Field = (0x04, 4);
const DRIVER_SELECT: Field = (0x08, 4);
const DRIVER_FEATURES: Field = (0x0c, 4);
const CONFIG_VECTOR: Field = (0x10, 2);
const STATUS: Field = (0x14, 1);
const GENERATION: Field = (0x15, 1);
const QUEUE_SELECT: Field = (0x16, 2);
const QUEUE_SIZE: Field = (0x18, 2);
const QUEUE_VECTOR: Field = (0x1a, 2);
const QUEUE_ENABLE: Field = (0x1c, 2);
const QUEUE_NOTIFY: Field = (0x1e, 2);
/// Descriptors, driver's area, device's area: the lower half of each; the upper one is behind it.
const QUEUE_AREAS: [u64; 3] = [0x20, 0x28, 0x30];
/// How many bytes of it virtio 1.0 has.
const COMMON_LENGTH: u32 = 0x38;

/// Registers of the configuration space (PCI Local Bus Specification 3.0, section 6.1), and of capabilities (6.7, 6.8.2).
const PCI_STATUS: u16 = 0x06;
const PCI_STATUS_LIST: u32 = 1 << 4;
const CAPABILITIES: u16 = 0x34;
const CAPABILITY_VENDOR: u32 = 0x09;
const CAPABILITY_MSIX: u32 = 0x11;
const MSIX_ENABLED: u32 = 1 << 15;
/// As many have room behind the header.
const MOST_CAPABILITIES: u32 = (0x100 - 0x40) / 4;

/// How often the status is read until a reset has to have ended: each read takes a microsecond or a few.
const RESET_READS: u32 = 2_000;
/// What is read where no device answers any more.
const GONE: u8 = 0xff;
/// How often the configuration is read again because it has changed meanwhile.
const CONFIG_READS: u32 = 8;

/// Returns where the capabilities of a function are, and what each is. There are no more than have room, whatever leads to the next one.
fn capabilities<F: Function>(function: &F) -> impl Iterator<Item = (u16, u32)> {
    let has_list = function.configuration(PCI_STATUS, 2) & PCI_STATUS_LIST != 0;
    let mut next = if has_list { CAPABILITIES } else { 0 };
    (0..MOST_CAPABILITIES).map_while(move |_| {
        let at = if next == 0 { 0 } else { function.configuration(next, 1) as u16 & 0xfc };
        next = at + 1;
        (at >= 0x40).then(|| (at, function.configuration(at, 1)))
    })
}

/// Says whether a function interrupts by messages: whether whoever has set it up has enabled MSI-X.
pub fn sends_messages<F: Function>(function: &F) -> bool {
    let enabled = |at| function.configuration(at + 2, 2) & MSIX_ENABLED != 0;
    capabilities(function).any(|(at, id)| id == CAPABILITY_MSIX && enabled(at))
}

/// A structure in a BAR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Structure {
    bar: u8,
    offset: u64,
    length: u32,
}

impl Structure {
    /// Reads the capability of a structure, which must have `least` bytes at a multiple of `alignment`, all of them in the BAR. Others are of no use:
    /// another one may follow (section 4.1.4.1).
    fn read<F: Function>(function: &F, capability: u16, least: u32, alignment: u64) -> Option<Self> {
        let bar = function.configuration(capability + 4, 1) as u8;
        let offset = u64::from(function.configuration(capability + 8, 4));
        let length = function.configuration(capability + 12, 4);
        let is_within = bar < 6 && offset + u64::from(length) <= function.length(bar);
        let is_fit = length >= least && offset.is_multiple_of(alignment);
        (is_within && is_fit).then_some(Self { bar, offset, length })
    }
}

/// Where a queue is notified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bell {
    queue: u16,
    offset: u64,
}

/// A virtio device behind a PCI function. It holds no more than where its structures are: the function comes with each call.
#[derive(Clone, Debug)]
pub struct Device {
    common: Structure,
    notify: Structure,
    multiplier: u32,
    isr: Structure,
    config: Option<Structure>,
    /// The vector of everything, if MSI-X is enabled.
    vector: u16,
}

impl Device {
    /// Finds the structures of a function, of each kind the first that can be used. Whoever has set up the function has decided on MSI-X.
    pub fn find<F: Function>(function: &F) -> Result<Self, Failure> {
        let (mut common, mut notify, mut isr, mut config) = (None, None, None, None);
        // What is cut off by the end of the configuration space is none.
        let is_structure = |&(at, id): &(u16, u32)| id == CAPABILITY_VENDOR && at <= 0x100 - 16;
        for (at, _) in capabilities(function).filter(is_structure) {
            match function.configuration(at + 3, 1) {
                1 if common.is_none() => common = Structure::read(function, at, COMMON_LENGTH, 4),
                2 if notify.is_none() && at <= 0x100 - 20 => {
                    let structure = Structure::read(function, at, 2, 2);
                    let multiplier = function.configuration(at + 16, 4);
                    notify =
                        structure.filter(|_| multiplier.is_multiple_of(2)).map(|notify| (notify, multiplier));
                }
                3 if isr.is_none() => isr = Structure::read(function, at, 1, 1),
                4 if config.is_none() => config = Structure::read(function, at, 1, 1),
                _ => {}
            }
        }
        let vector = if sends_messages(function) { 0 } else { NO_VECTOR };
        let (Some(common), Some((notify, multiplier)), Some(isr)) = (common, notify, isr) else {
            return Err(Failure::Structures);
        };
        Ok(Self { common, notify, multiplier, isr, config, vector })
    }

    fn get<F: Function>(&self, function: &F, (at, size): Field) -> u32 {
        function.read(self.common.bar, self.common.offset + at, size)
    }

    fn set<F: Function>(&self, function: &F, (at, size): Field, value: u32) {
        function.write(self.common.bar, self.common.offset + at, size, value);
    }

    fn status<F: Function>(&self, function: &F) -> Status {
        Status::from_bits_retain(self.get(function, STATUS) as u8)
    }

    /// Resets it: it has forgotten its queues, and touches no memory, unless it is broken.
    pub fn reset<F: Function>(&self, function: &F) -> Result<(), Failure> {
        self.set(function, STATUS, 0);
        // The device may take its time (section 4.1.4.3.1).
        let mut statuses = (0..RESET_READS).map(|_| self.status(function));
        match statuses.find(|status| status.is_empty() || status.bits() == GONE) {
            Some(status) if status.is_empty() => Ok(()),
            _ => Err(Failure::Reset),
        }
    }

    /// Resets it, and agrees on those of the `wanted` features that it offers, and on what it may insist on. Returns what was agreed on.
    pub fn begin<F: Function>(&self, function: &F, wanted: Features) -> Result<Features, Failure> {
        self.reset(function)?;
        let status = Status::ACKNOWLEDGE;
        self.set(function, STATUS, status.bits().into());
        let status = status | Status::DRIVER;
        self.set(function, STATUS, status.bits().into());
        let offered = [0, 1].into_iter().fold(Features::empty(), |offered, select| {
            self.set(function, DEVICE_SELECT, select);
            offered.with_word(select, self.get(function, DEVICE_FEATURES))
        });
        // Addresses are the bus's, and barriers those for devices, whether it says so or not.
        let own = Features::VERSION_1 | Features::ACCESS_PLATFORM | Features::ORDER_PLATFORM;
        let accepted = offered & (wanted | own);
        if !accepted.contains(Features::VERSION_1) {
            return Err(self.give_up(function, Failure::Features));
        }
        if function.is_guarded() && !accepted.contains(Features::ACCESS_PLATFORM) {
            return Err(self.give_up(function, Failure::Unguarded));
        }
        for select in [0, 1] {
            self.set(function, DRIVER_SELECT, select);
            self.set(function, DRIVER_FEATURES, accepted.word(select));
        }
        let status = status | Status::FEATURES_OK;
        self.set(function, STATUS, status.bits().into());
        if self.status(function) != status {
            return Err(self.give_up(function, Failure::Features));
        }
        self.set(function, CONFIG_VECTOR, self.vector.into());
        if self.get(function, CONFIG_VECTOR) != u32::from(self.vector) {
            return Err(self.give_up(function, Failure::Vector));
        }
        Ok(accepted)
    }

    /// Says that this driver has given up.
    fn give_up<F: Function>(&self, function: &F, failure: Failure) -> Failure {
        let status = self.status(function) | Status::FAILED;
        self.set(function, STATUS, status.bits().into());
        failure
    }

    /// Returns how many descriptors a queue is to have: no more than the device takes, nor than `most`.
    pub fn size<F: Function>(&self, function: &F, number: u16, most: u16) -> Result<u16, Failure> {
        self.set(function, QUEUE_SELECT, number.into());
        let most = (self.get(function, QUEUE_SIZE) as u16).min(most).min(MAX_SIZE);
        most.checked_ilog2().map(|bits| 1 << bits).ok_or(Failure::Queue(number))
    }

    /// Gives the device a queue, which the driver has made empty. Returns where it is notified.
    pub fn set_up<F: Function>(&self, function: &F, number: u16, layout: &Layout) -> Result<Bell, Failure> {
        self.set(function, QUEUE_SELECT, number.into());
        self.set(function, QUEUE_SIZE, layout.size().into());
        self.set(function, QUEUE_VECTOR, self.vector.into());
        if self.get(function, QUEUE_VECTOR) != u32::from(self.vector) {
            return Err(Failure::Vector);
        }
        let Areas { descriptors, driver, device } = layout.areas();
        for (at, address) in QUEUE_AREAS.into_iter().zip([descriptors, driver, device]) {
            self.set(function, (at, 4), address as u32);
            self.set(function, (at + 4, 4), (address >> 32) as u32);
        }
        let offset = u64::from(self.get(function, QUEUE_NOTIFY)) * u64::from(self.multiplier);
        let is_taken = self.get(function, QUEUE_SIZE) == u32::from(layout.size());
        if !is_taken || offset + 2 > u64::from(self.notify.length) {
            return Err(Failure::Queue(number));
        }
        self.set(function, QUEUE_ENABLE, 1);
        Ok(Bell { queue: number, offset: self.notify.offset + offset })
    }

    /// Lets the device begin.
    pub fn start<F: Function>(&self, function: &F) -> Result<(), Failure> {
        let status = Status::ACKNOWLEDGE | Status::DRIVER | Status::FEATURES_OK | Status::DRIVER_OK;
        self.set(function, STATUS, status.bits().into());
        match self.status(function) == status {
            true => Ok(()),
            false => Err(Failure::Broken),
        }
    }

    /// Says whether the device goes on: it has not lost its driver, nor does it need a reset.
    pub fn check<F: Function>(&self, function: &F) -> Result<(), Failure> {
        let status = self.status(function);
        match status.contains(Status::DRIVER_OK) && !status.contains(Status::NEEDS_RESET) {
            true => Ok(()),
            false => Err(Failure::Broken),
        }
    }

    /// Notifies the device of what is new in a queue.
    pub fn notify<F: Function>(&self, function: &F, bell: Bell) {
        function.write(self.notify.bar, bell.offset, 2, bell.queue.into());
    }

    /// Why there is an interrupt. By a pin, which is low behind it; by messages, nothing is read, and it may be for any reason.
    pub fn reasons<F: Function>(&self, function: &F) -> Isr {
        match self.vector {
            NO_VECTOR => Isr::from_bits_truncate(function.read(self.isr.bar, self.isr.offset, 1) as u8),
            _ => Isr::all(),
        }
    }

    /// Reads the first bytes of the configuration, all of one state of the device. `None` if it has not as many, or changes them all the time.
    pub fn config<F: Function, const N: usize>(&self, function: &F) -> Option<[u8; N]> {
        let config = self.config.filter(|config| config.length as usize >= N)?;
        (0..CONFIG_READS).find_map(|_| {
            let before = self.get(function, GENERATION);
            let mut bytes = [0; N];
            for (at, byte) in (config.offset..).zip(&mut bytes) {
                *byte = function.read(config.bar, at, 1) as u8;
            }
            (self.get(function, GENERATION) == before).then_some(bytes)
        })
    }
}
