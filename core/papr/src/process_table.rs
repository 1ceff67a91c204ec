// SPDX-License-Identifier: Apache-2.0 OR MIT
//! H_REGISTER_PROC_TBL: where the table is by which a radix guest's processes are translated (Power ISA 3.0B Book III 5.7.6).

use crate::code::Code;

/// In the second doubleword of a partition table entry: the guest translates by radix trees. It has to agree with the first
/// doubleword.
pub const RADIX: u64 = 1 << 63;

/// Flags of the call (R4).
mod flag {
    /// The guest translates its own invalidations (`GTSE`).
    pub const GTSE: u64 = 1;
    /// Radix trees, not hashed tables.
    pub const RADIX: u64 = 4;
    /// A table is there.
    pub const REGISTER: u64 = 8;
    /// The registration changes.
    pub const MODIFY: u64 = 0x10;
    pub const ALL: u64 = 0x1f;
}

/// The largest size of a table: 4 KiB times two to the power of this.
const MOST_SIZE: u64 = 24;

/// What the call asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    /// The second doubleword of the partition table entry; `None` if it stays.
    pub entry: Option<u64>,
    /// Whether the guest carries out invalidations of translations itself (LPCR.GTSE).
    pub gtse: bool,
}

/// Reads the call's arguments, R4 to R7: flags, the table's real address, the page size, and the size of the table.
///
/// # Errors
/// If something else than a radix table is asked for, or the table is no table.
pub fn register([flags, base, page_size, size]: [u64; 4]) -> Result<Registration, Code> {
    if flags & !flag::ALL != 0 {
        return Err(Code::PARAMETER);
    }
    let gtse = flags & flag::GTSE != 0;
    let radix = flags & flag::RADIX != 0;
    if flags & flag::MODIFY == 0 {
        // Partitions have radix trees from the start.
        return if radix { Ok(Registration { entry: None, gtse }) } else { Err(Code::PARAMETER) };
    }
    if flags & flag::REGISTER == 0 {
        return Ok(Registration { entry: Some(RADIX), gtse });
    }
    if !radix {
        return Err(Code::PARAMETER);
    }
    if base & 0xfff != 0 || base >> 52 != 0 {
        return Err(Code::P2);
    }
    if page_size != 0 {
        return Err(Code::P3);
    }
    // The table is aligned to its size: bits below it are no part of the address.
    if size > MOST_SIZE || base & ((0x1000 << size) - 1) != 0 {
        return Err(Code::P4);
    }
    Ok(Registration { entry: Some(RADIX | base | size), gtse })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn radix_tables_are_registered() {
        // What Linux asks for: a new radix table of 64 KiB, with invalidations of its own.
        assert_eq!(
            register([0x1d, 0x20_0000, 0, 4]),
            Ok(Registration { entry: Some(RADIX | 0x20_0004), gtse: true })
        );
        assert_eq!(
            register([0x1c, 0x20_0000, 0, 0]),
            Ok(Registration { entry: Some(RADIX | 0x20_0000), gtse: false })
        );
        assert_eq!(register([0x10, 0, 0, 0]), Ok(Registration { entry: Some(RADIX), gtse: false }));
        assert_eq!(register([0x05, 0, 0, 0]), Ok(Registration { entry: None, gtse: true }));
    }

    #[test]
    fn all_else_is_refused() {
        assert_eq!(register([0x20, 0, 0, 0]), Err(Code::PARAMETER));
        assert_eq!(register([u64::MAX, 0, 0, 0]), Err(Code::PARAMETER));
        // Hashed tables.
        for flags in [0x18, 0x1a, 0x00, 0x08] {
            assert_eq!(register([flags, 0, 0, 0]), Err(Code::PARAMETER), "{flags:#x}");
        }
        assert_eq!(register([0x1c, 0x800, 0, 0]), Err(Code::P2));
        assert_eq!(register([0x1c, 1 << 52, 0, 0]), Err(Code::P2));
        assert_eq!(register([0x1c, 0x20_0000, 1, 0]), Err(Code::P3));
        assert_eq!(register([0x1c, 0, 0, 25]), Err(Code::P4));
        assert_eq!(register([0x1c, 0x1000, 0, 1]), Err(Code::P4));
        assert_eq!(register([0x1c, 0, 0, u64::MAX]), Err(Code::P4));
    }
}
