// SPDX-License-Identifier: Apache-2.0 OR MIT
//! H_SET_MODE (LoPAPR 14.5.5.4.5): what of the processor is set by the hypervisor alone.

use crate::code::Code;

/// What is to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The caller's CIABR: the address of an instruction that traps.
    Ciabr(u64),
    /// The caller's DAWR0 and DAWRX0: addresses whose access traps.
    Dawr {
        /// DAWR0.
        address: u64,
        /// DAWRX0.
        control: u64,
    },
    /// Of all vCPUs: where interrupts are taken with translation on (LPCR.AIL: 0 or 3).
    InterruptLocation(u8),
    /// Of all vCPUs: whether interrupts are taken little-endian (LPCR.ILE).
    LittleEndianInterrupts(bool),
}

/// Bits of DAWRX that a guest may set: all but that for hypervisor state (Power ISA 3.0B Book III 9.4).
const DAWRX_GUEST: u64 = 0xffff_fffb;
/// The low bits of CIABR: the privilege of the instruction; 3 is the hypervisor's (Power ISA 3.0B Book III 9.3).
const CIABR_PRIVILEGE: u64 = 3;

/// Reads the call's arguments, R4 to R7: flags, resource, and two values. `isa_3_1` says whether the processor implements
/// Power ISA 3.1. On earlier ones the place of a radix guest's interrupts is that of the hypervisor's, too, with translation on
/// (LPCR.AIL, Power ISA 3.0B Book III 6.5): a hypervisor in real mode cannot offer any but the usual.
///
/// # Errors
/// If there is no such resource, or the values are not for a guest to set.
pub fn set([flags, resource, first, second]: [u64; 4], isa_3_1: bool) -> Result<Mode, Code> {
    match resource {
        1 => ciabr(flags, first, second),
        2 => dawr(flags, first, second),
        3 => location(flags, first, second, isa_3_1),
        4 => endianness(flags, first, second),
        _ => Err(Code::P2),
    }
}

fn ciabr(flags: u64, address: u64, second: u64) -> Result<Mode, Code> {
    match () {
        () if flags != 0 => Err(Code::UNSUPPORTED_FLAG),
        () if second != 0 => Err(Code::P4),
        () if address & CIABR_PRIVILEGE == CIABR_PRIVILEGE => Err(Code::P3),
        () => Ok(Mode::Ciabr(address)),
    }
}

fn dawr(flags: u64, address: u64, control: u64) -> Result<Mode, Code> {
    match () {
        () if flags != 0 => Err(Code::UNSUPPORTED_FLAG),
        () if control & !DAWRX_GUEST != 0 => Err(Code::P4),
        () => Ok(Mode::Dawr { address: address & !7, control }),
    }
}

fn location(flags: u64, first: u64, second: u64, isa_3_1: bool) -> Result<Mode, Code> {
    match flags {
        _ if first != 0 => Err(Code::P3),
        _ if second != 0 => Err(Code::P4),
        0 => Ok(Mode::InterruptLocation(0)),
        3 if isa_3_1 => Ok(Mode::InterruptLocation(3)),
        2 | 3 if !isa_3_1 => Err(Code::P2),
        _ => Err(Code::UNSUPPORTED_FLAG),
    }
}

fn endianness(flags: u64, first: u64, second: u64) -> Result<Mode, Code> {
    match flags {
        _ if first != 0 => Err(Code::P3),
        _ if second != 0 => Err(Code::P4),
        0 | 1 => Ok(Mode::LittleEndianInterrupts(flags == 1)),
        _ => Err(Code::UNSUPPORTED_FLAG),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_read() {
        assert_eq!(set([1, 4, 0, 0], false), Ok(Mode::LittleEndianInterrupts(true)));
        assert_eq!(set([0, 4, 0, 0], false), Ok(Mode::LittleEndianInterrupts(false)));
        assert_eq!(set([3, 3, 0, 0], true), Ok(Mode::InterruptLocation(3)));
        assert_eq!(set([0, 3, 0, 0], false), Ok(Mode::InterruptLocation(0)));
        assert_eq!(set([0, 1, 0x1002, 0], false), Ok(Mode::Ciabr(0x1002)));
        assert_eq!(set([0, 2, 0x1007, 3], false), Ok(Mode::Dawr { address: 0x1000, control: 3 }));
    }

    #[test]
    fn what_is_not_for_guests_is_refused() {
        assert_eq!(set([0, 1, 0x1003, 0], false), Err(Code::P3), "an instruction of the hypervisor");
        assert_eq!(set([0, 2, 0, 4], false), Err(Code::P4), "an access of the hypervisor");
        assert_eq!(set([0, 2, 0, 1 << 32], false), Err(Code::P4));
        assert_eq!(set([1, 3, 0, 0], false), Err(Code::UNSUPPORTED_FLAG));
        assert_eq!(set([2, 3, 0, 0], true), Err(Code::UNSUPPORTED_FLAG));
        assert_eq!(set([3, 3, 0, 0], false), Err(Code::P2), "the hypervisor's would go there, too");
        assert_eq!(set([4, 3, 0, 0], false), Err(Code::UNSUPPORTED_FLAG));
        assert_eq!(set([2, 4, 0, 0], false), Err(Code::UNSUPPORTED_FLAG));
        assert_eq!(set([0, 3, 1, 0], false), Err(Code::P3));
        assert_eq!(set([0, 4, 0, 1], false), Err(Code::P4));
        for resource in [0, 5, 6, 1 << 32, u64::MAX] {
            assert_eq!(set([0, resource, 0, 0], false), Err(Code::P2), "{resource:#x}");
        }
    }
}
