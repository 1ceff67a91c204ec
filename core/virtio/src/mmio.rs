// SPDX-License-Identifier: Apache-2.0 OR MIT
//! virtio over MMIO, version 2 (section 4.2).

use crate::config::Configuration;
use crate::registers::{Effect, Isr, Part, Registers};

/// How many bytes of address space a device takes, at least; its configuration ends with it.
pub const LENGTH: u64 = 0x200;
/// Where drivers write the number of a queue that has buffers (`QueueNotify`).
pub const NOTIFY: u64 = 0x50;
/// "virt".
const MAGIC: u32 = 0x7472_6976;
/// Where the configuration begins.
const CONFIG: u64 = 0x100;

/// A device behind MMIO, with `Q` queues.
#[derive(Clone, Debug)]
pub struct Device<const Q: usize, C> {
    kind: u16,
    vendor: u32,
    /// Status, features, queues.
    pub registers: Registers<Q>,
    /// The configuration.
    pub config: C,
    /// The reasons for an interrupt that the driver has read since they came.
    seen: Isr,
}

impl<const Q: usize, C: Configuration> Device<Q, C> {
    /// Makes a device of a type (section 5), whose vendor is the driver's to interpret.
    pub const fn new(kind: u16, vendor: u32, registers: Registers<Q>, config: C) -> Self {
        Self { kind, vendor, registers, config, seen: Isr::empty() }
    }

    /// Reads `size` bytes at `offset`. Registers are read by aligned accesses of 4 bytes; others read as zero, as what is not there
    /// does.
    pub fn read(&mut self, offset: u64, size: u8) -> u64 {
        if offset >= CONFIG {
            return self.config.read(offset - CONFIG, size);
        }
        if size != 4 {
            return 0;
        }
        let registers = &self.registers;
        let queue = registers.selected();
        let value = match offset {
            0x000 => MAGIC,
            0x004 => 2,
            0x008 => self.kind.into(),
            0x00c => self.vendor,
            0x010 => registers.offered_word(),
            0x034 => queue.map_or(0, |queue| queue.maximum().into()),
            0x044 => queue.is_some_and(|queue| queue.is_enabled()).into(),
            0x060 => {
                self.seen = registers.isr();
                self.seen.bits().into()
            }
            0x070 => registers.shown_status().bits().into(),
            // There is no shared memory: a length of -1.
            0x0b0 | 0x0b4 | 0x0b8 | 0x0bc => u32::MAX,
            0x0fc => registers.generation().into(),
            _ => 0,
        };
        value.into()
    }

    /// Writes `size` bytes at `offset`. Registers are written by aligned accesses of 4 bytes; others are ignored.
    pub fn write(&mut self, offset: u64, size: u8, value: u64) -> Option<Effect> {
        if offset >= CONFIG {
            return self.config.write(offset - CONFIG, size, value).then_some(Effect::Configured);
        }
        if size != 4 {
            return None;
        }
        let value = value as u32;
        let registers = &mut self.registers;
        match offset {
            0x014 => *registers.selects().0 = value,
            0x020 => registers.accept_word(value),
            0x024 => *registers.selects().1 = value,
            // A number above all queues is one that does not exist.
            0x030 => *registers.queue_select() = u16::try_from(value).unwrap_or(u16::MAX),
            // A size that does not fit is one that no queue has.
            0x038 => registers.selected_mut()?.set_size(u16::try_from(value).unwrap_or(0)),
            0x044 => return if value & 1 != 0 { registers.enable() } else { registers.disable() },
            NOTIFY => return registers.notify(u16::try_from(value).ok()?),
            // A reason that came after the driver has read them stays: it may have looked at the queues before.
            0x064 => registers.acknowledge(self.seen & Isr::from_bits_truncate(value as u8)),
            0x070 => return registers.write_status(value as u8),
            0x080..0x0a8 => {
                let (part, upper) = area(offset)?;
                registers.selected_mut()?.set_half(part, upper, value);
            }
            0x0c0 if value & 1 != 0 => return registers.reset_queue(),
            _ => {}
        }
        None
    }

    /// Used buffers are there: the line is high from now on, until the driver acknowledges them. Each call is an edge, for whose line has
    /// no level.
    #[inline] // On the path of every interrupt.
    pub fn raise_queue(&mut self) {
        self.raise(Isr::QUEUE);
    }

    /// The device changed its configuration: the driver reads it again. Returns whether there is an interrupt.
    #[must_use = "the driver must be told"]
    pub fn raise_config(&mut self) -> bool {
        let is_told = self.registers.change();
        if is_told {
            self.raise(Isr::CONFIG);
        }
        is_told
    }

    /// The device cannot go on. Returns whether there is an interrupt.
    #[must_use = "the driver must be told"]
    pub fn fail(&mut self) -> bool {
        let is_told = self.registers.fail();
        if is_told {
            self.raise(Isr::CONFIG);
        }
        is_told
    }

    /// Whether its interrupt line is high.
    pub const fn line(&self) -> bool {
        !self.registers.isr().is_empty()
    }

    #[inline] // On the path of every interrupt.
    fn raise(&mut self, reason: Isr) {
        self.seen -= reason;
        self.registers.raise(reason);
    }
}

/// The area of a queue, and which half of its address, that a register holds.
const fn area(offset: u64) -> Option<(Part, bool)> {
    Some(match offset {
        0x080 => (Part::Descriptors, false),
        0x084 => (Part::Descriptors, true),
        0x090 => (Part::Driver, false),
        0x094 => (Part::Driver, true),
        0x0a0 => (Part::Device, false),
        0x0a4 => (Part::Device, true),
        _ => return None,
    })
}
