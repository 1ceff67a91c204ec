// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loads and stores that reach devices (Power ISA 3.0B Book I, 3.3.2 to 3.3.4): what they move, and where to.
//!
//! FP, vector, multiple, string, atomic and prefixed accesses are not among them: what is caching inhibited does not have to
//! take them (Book III, 6.5.3).

/// An access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Access {
    /// The register that is loaded or stored.
    pub register: usize,
    /// Bytes: 1, 2, 4 or 8.
    pub size: u8,
    /// It stores.
    pub store: bool,
    /// A load extends the sign.
    pub signed: bool,
    /// The bytes are in the other order.
    pub reversed: bool,
    /// The register that gets the effective address.
    pub update: Option<usize>,
}

const STORE: u8 = 1 << 4;
const SIGNED: u8 = 1 << 5;
const REVERSED: u8 = 1 << 6;
const UPDATE: u8 = 1 << 7;

/// What the forms with a displacement of 16 bits do, by their opcodes; zero for those that are none.
///
/// There are 64 opcodes. Compilers fold tables of so many entries into constants of 64 bits, which take more instructions than the
/// load that they save.
const DISPLACED: [u8; 128] = {
    let mut kinds = [0; 128];
    let loads =
        [(32, 4), (34, 1), (36, 4 | STORE), (38, 1 | STORE), (40, 2), (42, 2 | SIGNED), (44, 2 | STORE)];
    let mut next = 0;
    while next < loads.len() {
        let (opcode, kind) = loads[next];
        kinds[opcode] = kind;
        kinds[opcode + 1] = kind | UPDATE;
        next += 1;
    }
    kinds
};

/// Decodes an instruction; `None` if it is none of these.
#[inline] // A load from a table, mostly.
pub(super) fn decode(instruction: u32) -> Option<Access> {
    match decode_displaced(instruction) {
        None => Some(access(instruction, other(instruction)?)),
        found => found,
    }
}

/// Decodes an instruction with a displacement of 16 bits, as most are; `None` if it is none.
#[inline(always)] // A load from a table.
pub(super) fn decode_displaced(instruction: u32) -> Option<Access> {
    static KINDS: [u8; 128] = DISPLACED;
    let kind = KINDS[(instruction >> 26) as usize];
    (kind != 0).then(|| access(instruction, kind))
}

/// The access of an instruction of some kind.
#[inline(always)] // Shifts and masks.
fn access(instruction: u32, kind: u8) -> Access {
    let field = |shift: u32| (instruction >> shift & 31) as usize;
    Access {
        register: field(21),
        size: kind & 0xf,
        store: kind & STORE != 0,
        signed: kind & SIGNED != 0,
        reversed: kind & REVERSED != 0,
        update: (kind & UPDATE != 0).then(|| field(16)),
    }
}

/// The forms with a displacement of 14 bits, and those with an index register.
#[inline(never)] // Not of the others.
fn other(instruction: u32) -> Option<u8> {
    match (instruction >> 26, instruction & 3) {
        (31, _) => indexed(instruction >> 1 & 0x3ff),
        (58, 0) => Some(8),
        (58, 1) => Some(8 | UPDATE),
        (58, 2) => Some(4 | SIGNED),
        (62, 0) => Some(8 | STORE),
        (62, 1) => Some(8 | STORE | UPDATE),
        _ => None,
    }
}

/// The forms with a displacement of 16 bits, by their opcodes.
fn displaced(opcode: u32) -> Option<u8> {
    Some(DISPLACED[opcode as usize & 63]).filter(|kind| *kind != 0)
}

/// The forms with an index register, by their extended opcodes.
fn indexed(opcode: u32) -> Option<u8> {
    Some(match opcode {
        21 => 8,
        53 => 8 | UPDATE,
        149 => 8 | STORE,
        181 => 8 | STORE | UPDATE,
        341 => 4 | SIGNED,
        373 => 4 | SIGNED | UPDATE,
        532 => 8 | REVERSED,
        534 => 4 | REVERSED,
        790 => 2 | REVERSED,
        660 => 8 | STORE | REVERSED,
        662 => 4 | STORE | REVERSED,
        918 => 2 | STORE | REVERSED,
        // What has a form with a displacement, too, is numbered alike: lwzx as lwz, lwzux as lwzu, and so on.
        _ if opcode & 0x1f == 23 => displaced(32 + (opcode >> 5))?,
        _ => return None,
    })
}

impl Access {
    /// The value that a device gets for that of the register, in a guest whose byte order is little-endian or not.
    pub(super) fn to_device(self, value: u64, little: bool) -> u64 {
        let value = value & self.mask();
        if self.reversed == little { self.swap(value) } else { value }
    }

    /// The value that the register gets for that of a device.
    pub(super) fn to_register(self, value: u64, little: bool) -> u64 {
        let value = value & self.mask();
        let value = if self.reversed == little { self.swap(value) } else { value };
        let unused = 64 - 8 * u32::from(self.size);
        if self.signed { ((value << unused) as i64 >> unused) as u64 } else { value }
    }

    fn mask(self) -> u64 {
        u64::MAX >> (64 - 8 * u32::from(self.size))
    }

    fn swap(self, value: u64) -> u64 {
        value.swap_bytes() >> (64 - 8 * u32::from(self.size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Access =
        Access { register: 3, size: 4, store: false, signed: false, reversed: false, update: None };

    #[test]
    fn loads_and_stores_are_decoded() {
        // As an assembler gives them.
        let cases = [
            (0x8064_0008, PLAIN),                                     // lwz r3, 8(r4)
            (0x8464_0008, Access { update: Some(4), ..PLAIN }),       // lwzu r3, 8(r4)
            (0x8864_0000, Access { size: 1, ..PLAIN }),               // lbz r3, 0(r4)
            (0xa864_0000, Access { size: 2, signed: true, ..PLAIN }), // lha r3, 0(r4)
            (0xe864_0000, Access { size: 8, ..PLAIN }),               // ld r3, 0(r4)
            (0xe864_0002, Access { signed: true, ..PLAIN }),          // lwa r3, 0(r4)
            (0xfbe4_0001, Access { register: 31, size: 8, store: true, update: Some(4), ..PLAIN }), // stdu r31, 0(r4)
            (0x9864_0000, Access { size: 1, store: true, ..PLAIN }), // stb r3, 0(r4)
            (0x7c64_282e, PLAIN),                                    // lwzx r3, r4, r5
            (0x7c64_292e, Access { store: true, ..PLAIN }),          // stwx r3, r4, r5
            (0x7c64_2aee, Access { size: 2, signed: true, update: Some(4), ..PLAIN }), // lhaux r3, r4, r5
            (0x7c64_2b6e, Access { size: 2, store: true, update: Some(4), ..PLAIN }), // sthux r3, r4, r5
            (0x7c64_2aaa, Access { signed: true, ..PLAIN }),         // lwax r3, r4, r5
            (0x7c64_2c2c, Access { reversed: true, ..PLAIN }),       // lwbrx r3, r4, r5
            (0x7c64_2d28, Access { size: 8, store: true, reversed: true, ..PLAIN }), // stdbrx r3, r4, r5
        ];
        for (instruction, access) in cases {
            assert_eq!(decode(instruction), Some(access), "{instruction:#x}");
        }
    }

    #[test]
    fn nothing_else_is() {
        // lfd, stfd, lq, stq, lwarx, stwcx., dcbz, lmw, lfsx, an addition, nothing.
        for instruction in [
            0xc864_0000,
            0xd864_0000,
            0xe064_0000,
            0xf864_0002,
            0x7c64_2828,
            0x7c64_292d,
            0x7c04_2fec,
            0xb864_0000,
            0x7c64_2c2e,
            0x7c64_2a14,
            0,
        ] {
            assert_eq!(decode(instruction), None, "{instruction:#x}");
        }
    }

    #[test]
    fn bytes_are_in_the_order_of_the_guest() {
        let access = Access { size: 2, signed: true, ..PLAIN };
        assert_eq!(access.to_register(0x1_8011, true), 0xffff_ffff_ffff_8011);
        assert_eq!(access.to_register(0x8011, false), 0x1180);
        let reversed = Access { reversed: true, ..PLAIN };
        assert_eq!(reversed.to_device(0xffff_ffff_1122_3344, true), 0x4433_2211);
        assert_eq!(reversed.to_device(0x1122_3344, false), 0x1122_3344);
        assert_eq!(Access { size: 8, ..PLAIN }.to_device(u64::MAX - 1, true), u64::MAX - 1);
    }
}
