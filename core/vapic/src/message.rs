// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupt messages: what goes over the bus between APICs (APM vol. 2, 16.5).

/// The destination that means every vCPU.
pub const BROADCAST: u32 = u32::MAX;

/// How a message is delivered: the message type of the ICR, of an LVT entry or of a redirection entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// 000: to all that are named.
    Fixed,
    /// 001: to one of those that are named.
    LowestPriority,
    /// 010: a system management interrupt. There is no SMM: it has no effect.
    Smi,
    /// 100: a non-maskable interrupt.
    Nmi,
    /// 101.
    Init,
    /// 110: start at the page that the vector names. Reserved where a device sends.
    Startup,
    /// 111: as the 8259's INTR pin does.
    External,
    /// 011.
    Reserved,
}

impl Delivery {
    /// Decodes bits 10:8 of a register.
    #[inline]
    pub const fn of(register: u32) -> Self {
        match register >> 8 & 7 {
            0 => Self::Fixed,
            1 => Self::LowestPriority,
            2 => Self::Smi,
            4 => Self::Nmi,
            5 => Self::Init,
            6 => Self::Startup,
            7 => Self::External,
            _ => Self::Reserved,
        }
    }
}

/// What reaches a vCPU beside interrupts by vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// A non-maskable interrupt.
    Nmi,
    /// INIT: reset, then wait for a start-up.
    Init,
    /// Start at this page number, if it waits for that.
    Startup(u8),
}

/// A message on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The vector; of a start-up the page number.
    pub vector: u8,
    /// How it is delivered.
    pub delivery: Delivery,
    /// Whether the destination is logical.
    pub logical: bool,
    /// Who is meant; [`BROADCAST`] for all.
    pub destination: u32,
    /// Whether its end has to be told to the board: of all level-triggered ones to the I/O APIC.
    pub level: bool,
}

/// The addresses at which messages of devices arrive: bits 31:20 (APM vol. 2, 16.12).
const ADDRESS: u64 = 0xfee;
/// Address: to one of those that are named.
const HINT: u64 = 1 << 3;
/// Address: the destination is logical.
const LOGICAL: u64 = 1 << 2;
/// Data: a level is asserted; it is taken back otherwise.
const ASSERT: u32 = 1 << 14;
/// Data: it is level-triggered.
const LEVEL: u32 = 1 << 15;

impl Message {
    /// Decodes what a device writes to interrupt; bits 11:5 of the address extend the destination (`KVM_FEATURE_MSI_EXT_DEST_ID`).
    /// `None` if nothing is at the address, or nothing is interrupted that way.
    pub const fn of_device(address: u64, data: u32) -> Option<Self> {
        if address >> 20 != ADDRESS || data & (LEVEL | ASSERT) == LEVEL {
            return None;
        }
        let delivery = match Delivery::of(data) {
            Delivery::Fixed if address & HINT != 0 => Delivery::LowestPriority,
            // Devices start no vCPUs, and none is an 8259.
            Delivery::Startup | Delivery::External | Delivery::Reserved => return None,
            delivery => delivery,
        };
        let (id, extension) = ((address >> 12) as u32 & 0xff, (address >> 5) as u32 & 0x7f);
        Some(Self {
            vector: data as u8,
            delivery,
            logical: address & LOGICAL != 0,
            destination: if id == 0xff && extension == 0 { BROADCAST } else { extension << 8 | id },
            level: data & LEVEL != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_devices_write_is_decoded() {
        let plain =
            Message { vector: 0x41, delivery: Delivery::Fixed, logical: false, destination: 3, level: false };
        let of = Message::of_device;
        assert_eq!(of(0xfee0_3000, 0x41), Some(plain));
        assert_eq!(of(0xfee0_3004, 0x41), Some(Message { logical: true, ..plain }));
        let lowest = Message { delivery: Delivery::LowestPriority, logical: true, ..plain };
        assert_eq!((of(0xfee0_300c, 0x41), of(0xfee0_3004, 0x141)), (Some(lowest), Some(lowest)));
        assert_eq!(of(0xfee0_3020, 0x41), Some(Message { destination: 0x103, ..plain }));
        assert_eq!(of(0xfeef_f000, 0x41), Some(Message { destination: BROADCAST, ..plain }));
        assert_eq!(of(0xfee0_3000, 0xc041), Some(Message { level: true, ..plain }));
        for (data, delivery) in [(0x241, Delivery::Smi), (0x441, Delivery::Nmi), (0x541, Delivery::Init)] {
            assert_eq!(of(0xfee0_3000, data), Some(Message { delivery, ..plain }));
        }
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for address in [0, 0xfed0_0000, 0xfef0_0000, 1 << 32 | 0xfee0_0000, u64::MAX] {
            assert_eq!(Message::of_device(address, 0x41), None, "{address:#x}");
        }
        for data in [0x341, 0x641, 0x741, 0x8041] {
            assert_eq!(Message::of_device(0xfee0_0000, data), None, "{data:#x}");
        }
    }
}
