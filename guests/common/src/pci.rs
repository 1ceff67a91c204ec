// SPDX-License-Identifier: Apache-2.0 OR MIT
//! PCI functions of bus 0, as a driver finds and places them (PCI Local Bus Specification 3.0, chapter 6).

/// Vendor and device.
const IDENTITY: u16 = 0x00;
const COMMAND: u16 = 0x04;
const BAR0: u16 = 0x10;
const CAPABILITIES: u16 = 0x34;
/// The BAR before is one of 64 bits, of which this is the upper half.
const WIDE: u32 = 0b100;
/// Bits of a BAR that are no address.
const KIND: u32 = 0xf;
/// Memory and bus master.
const ON: u32 = 1 << 1 | 1 << 2;
/// How many BARs a function has.
pub const BARS: usize = 6;
/// The most capabilities that fit.
const MOST: usize = 48;

/// How configuration spaces are reached: slot, offset, and bytes, which are 1, 2 or 4.
#[derive(Clone, Copy)]
pub struct Config {
    /// Reads.
    pub read: fn(u8, u16, u8) -> u32,
    /// Writes.
    pub write: fn(u8, u16, u8, u32),
}

impl Config {
    /// Returns the slots with functions of this vendor and device.
    pub fn find(self, vendor: u16, device: u16) -> impl Iterator<Item = u8> {
        let wanted = u32::from(device) << 16 | u32::from(vendor);
        (0..32).filter(move |slot| (self.read)(*slot, IDENTITY, 4) == wanted)
    }

    /// Lets a function decode its BARs and write memory, or neither.
    pub fn set_enabled(self, slot: u8, on: bool) {
        (self.write)(slot, COMMAND, 2, if on { ON } else { 0 });
    }

    /// Returns how many bytes each BAR decodes; the function must not be enabled, and its BARs are to be placed after that.
    pub fn sizes(self, slot: u8) -> [u64; BARS] {
        let mut sizes = [0; BARS];
        let mut bar = 0;
        while let Some(size) = sizes.get_mut(bar) {
            let at = BAR0 + 4 * bar as u16;
            let wide = (self.read)(slot, at, 4) & KIND & WIDE != 0;
            (self.write)(slot, at, 4, !0);
            let mask = (self.read)(slot, at, 4) & !KIND;
            *size = if mask == 0 { 0 } else { u64::from(!mask) + 1 };
            bar += if wide { 2 } else { 1 };
        }
        sizes
    }

    /// Places a BAR.
    pub fn place(self, slot: u8, bar: u8, address: u64) {
        let at = BAR0 + 4 * u16::from(bar);
        (self.write)(slot, at, 4, address as u32);
        if (self.read)(slot, at, 4) & WIDE != 0 {
            (self.write)(slot, at + 4, 4, (address >> 32) as u32);
        }
    }

    /// Places all BARs one behind the other, from an address on.
    pub fn place_all(self, slot: u8, from: u64) -> [u64; BARS] {
        self.set_enabled(slot, false);
        let mut next = from;
        let mut places = [0; BARS];
        for (bar, (size, place)) in (0..).zip(self.sizes(slot).into_iter().zip(&mut places)) {
            if size != 0 {
                *place = next.next_multiple_of(size);
                self.place(slot, bar, *place);
                next = *place + size;
            }
        }
        self.set_enabled(slot, true);
        places
    }

    /// Returns the capabilities, each with its identifier.
    pub fn capabilities(self, slot: u8) -> impl Iterator<Item = (u8, u16)> {
        let read = move |at| (self.read)(slot, at, 1) as u16 & 0xfc;
        let first = Some(read(CAPABILITIES));
        core::iter::successors(first, move |at| Some(read(at + 1)))
            .take_while(|at| *at != 0)
            .take(MOST)
            .map(move |at| ((self.read)(slot, at, 1) as u8, at))
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::sync::Mutex;
    use std::vec::Vec;

    use super::*;

    /// The function in slot 3: 4 KiB at BAR 0, 16 KiB at BAR 4, which is wide, two capabilities.
    static SPACE: Mutex<[u32; 64]> = Mutex::new([0; 64]);

    const CONFIG: Config = Config {
        read: |slot, offset, size| {
            let word = SPACE.lock().unwrap()[usize::from(offset / 4)] >> (8 * (offset % 4));
            if slot != 3 { !0 } else { word & (u64::from(!0_u32) >> (32 - 8 * size)) as u32 }
        },
        write: |_, offset, size, value| {
            assert!(size == 4 || offset == COMMAND);
            let (fixed, mask) = match offset {
                0x10 => (0, 0xffff_f000),
                0x20 => (WIDE, 0xffff_c000),
                0x24 | COMMAND => (0, !0),
                _ => (0, 0),
            };
            SPACE.lock().unwrap()[usize::from(offset / 4)] = value & mask | fixed;
        },
    };

    #[test]
    fn a_function_is_found_and_placed() {
        {
            let mut space = SPACE.lock().unwrap();
            (space[0], space[8], space[13]) = (0x1042_1af4, WIDE, 0x40);
            (space[16], space[20]) = (0x5009, 0x11);
        }
        assert_eq!(CONFIG.find(0x1af4, 0x1042).collect::<Vec<_>>(), [3]);
        assert_eq!(CONFIG.place_all(3, 0x1_0000_1000), [0x1_0000_1000, 0, 0, 0, 0x1_0000_4000, 0]);
        let space = *SPACE.lock().unwrap();
        assert_eq!((space[8], space[9], space[1]), (0x4000 | WIDE, 1, ON));
        assert_eq!(CONFIG.capabilities(3).collect::<Vec<_>>(), [(9, 0x40), (0x11, 0x50)]);
    }
}
