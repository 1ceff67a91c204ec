// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A GICv2m frame: a page at which a write becomes the edge of an SPI (Server Base System Architecture, DEN0029, appendix E).

use crate::truncate;

/// `MSI_TYPER`: the first SPI's INTID in bits 25 to 16, how many there are in bits 9 to 0.
const TYPER: u64 = 0x008;
/// `MSI_SETSPI_NS`: the INTID of the SPI.
const SETSPI: u64 = 0x040;

/// A frame, which has no state: the edges are the distributor's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MsiFrame {
    /// The INTID of its first SPI.
    pub first: u32,
    /// How many SPIs it has.
    pub count: u32,
}

impl MsiFrame {
    /// Reads `size` bytes at `offset`. `MSI_IIDR` is zero, as what else is not there.
    pub const fn read(&self, offset: u64, size: u8) -> u64 {
        match offset {
            TYPER => truncate((self.first << 16 | self.count) as u64, size),
            _ => 0,
        }
    }

    /// A write of `value` at `offset`: returns the SPI that has an edge, if it is one of the frame's. Bits above 9 of the value are not
    /// decoded.
    pub const fn write(&self, offset: u64, value: u64) -> Option<u32> {
        let intid = value as u32 & 0x3ff;
        if offset == SETSPI && intid.wrapping_sub(self.first) < self.count { Some(intid) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: MsiFrame = MsiFrame { first: 64, count: 64 };

    #[test]
    fn it_says_what_it_has() {
        assert_eq!((FRAME.read(TYPER, 4), FRAME.read(TYPER, 2)), (0x40_0040, 0x40));
        assert_eq!([0, 4, SETSPI, 0xfcc, 0xfff].map(|offset| FRAME.read(offset, 4)), [0; 5]);
    }

    #[test]
    fn only_its_own_interrupts_have_edges() {
        let set = |value| FRAME.write(SETSPI, value);
        assert_eq!([63, 64, 127, 128, 0, 1023].map(set), [None, Some(64), Some(127), None, None, None]);
        assert_eq!(set(0xffff_0040), Some(64));
        assert_eq!([0, TYPER, 0x44, 0x41].map(|offset| FRAME.write(offset, 64)), [None; 4]);
    }
}
