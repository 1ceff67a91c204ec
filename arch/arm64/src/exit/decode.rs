// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stage 2 faults: what their syndrome and address registers say.

use crate::cpu::regs;

pub(super) const ISV: u32 = 1 << 24;
pub(super) const SSE: u32 = 1 << 21;
pub(super) const SF: u32 = 1 << 15;
pub(super) const S1PTW: u32 = 1 << 7;
pub(super) const WNR: u32 = 1 << 6;
pub(super) const SAS: u32 = 3 << 22;
pub(super) const SAS_WORD: u32 = 2 << 22;
/// DFSC without its level.
pub(super) const FAULT: u32 = 0x3c;
pub(super) const FAULT_TRANSLATION: u32 = 0x04;

/// Returns the faulting intermediate physical address.
#[inline(always)] // Two register reads, two shifts.
pub(super) fn fault_address() -> u64 {
    (regs::HPFAR_EL2.read() & !0xf) << 8 | regs::FAR_EL2.read() & 0xfff
}

/// A register access, decoded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decoded {
    pub size: u8,
    pub write: bool,
    pub register: usize,
    sign_extend: bool,
    wide: bool,
}

impl Decoded {
    pub fn new(iss: u32) -> Self {
        Self {
            size: 1 << (iss >> 22 & 3),
            write: iss & WNR != 0,
            register: (iss >> 16 & 31) as usize,
            sign_extend: iss & SSE != 0,
            wide: iss & SF != 0,
        }
    }

    /// Extends what a device returned to what the load leaves in its register.
    pub fn extend(&self, value: u64) -> u64 {
        let bits = 8 * u32::from(self.size);
        let value = if bits < 64 { value & ((1 << bits) - 1) } else { value };
        let unused = 64 - bits;
        let value = if self.sign_extend { ((value << unused) as i64 >> unused) as u64 } else { value };
        if self.wide { value } else { value & 0xffff_ffff }
    }

    /// Cuts a stored value to the size of the access.
    pub fn extend_for_device(&self, value: u64) -> u64 {
        let bits = 8 * u32::from(self.size);
        // By what is not used of 64: none of the sizes needs a comparison.
        value & u64::MAX.wrapping_shr(64 - bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_extend_as_the_instruction_says() {
        let iss =
            |sas: u32, sse: bool, sf: bool| ISV | sas << 22 | u32::from(sse) << 21 | u32::from(sf) << 15;
        let cases = [
            (iss(0, false, false), 0x1234_56f8, 0xf8),
            (iss(0, true, false), 0x80, 0xffff_ff80),
            (iss(0, true, true), 0x80, 0xffff_ffff_ffff_ff80),
            (iss(1, true, true), 0x8000, 0xffff_ffff_ffff_8000),
            (iss(2, true, true), 0x8000_0000, 0xffff_ffff_8000_0000),
            (iss(2, false, false), 0xffff_ffff_8000_0000, 0x8000_0000),
            (iss(3, false, true), 0x8000_0000_0000_0001, 0x8000_0000_0000_0001),
        ];
        for (iss, value, expected) in cases {
            assert_eq!(Decoded::new(iss).extend(value), expected, "ISS {iss:#x}");
        }
    }
}
