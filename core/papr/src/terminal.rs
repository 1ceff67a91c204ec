// SPDX-License-Identifier: Apache-2.0 OR MIT
//! H_PUT_TERM_CHAR and H_GET_TERM_CHAR (LoPAPR 16.4.2): up to sixteen characters in two registers, the first in the most
//! significant byte.

use crate::code::Code;

/// The unit address of the only terminal, by which calls name it.
pub const UNIT: u64 = 0x7100_0000;
/// The most characters of a call.
pub const MOST: usize = 16;

/// Checks which terminal a call names, and how many characters it has: none, if it reads.
///
/// # Errors
/// If there is no such terminal, or there are too many characters.
#[inline] // A few comparisons.
pub const fn check(unit: u64, count: u64) -> Result<(), Code> {
    if is_terminal(unit) && count <= MOST as u64 { Ok(()) } else { Err(Code::PARAMETER) }
}

/// Returns the characters that H_PUT_TERM_CHAR writes, given R4 to R7.
///
/// # Errors
/// If there is no such terminal, or there are too many characters.
pub fn put([unit, count, high, low]: [u64; 4]) -> Result<([u8; MOST], usize), Code> {
    check(unit, count)?;
    Ok(((u128::from(high) << 64 | u128::from(low)).to_be_bytes(), count as usize))
}

/// Checks the argument of H_GET_TERM_CHAR, R4.
///
/// # Errors
/// If there is no such terminal.
pub fn get(unit: u64) -> Result<(), Code> {
    check(unit, 0)
}

/// Returns what H_GET_TERM_CHAR answers in R4 to R6, of at most [`MOST`] typed characters.
#[must_use]
pub fn typed(characters: &[u8]) -> [u64; 3] {
    let mut bytes = [0; MOST];
    let count = characters.len().min(MOST);
    for (byte, character) in bytes.iter_mut().zip(characters) {
        *byte = *character;
    }
    let both = u128::from_be_bytes(bytes);
    [count as u64, (both >> 64) as u64, both as u64]
}

/// Zero is the first terminal there is.
const fn is_terminal(unit: u64) -> bool {
    matches!(unit, 0 | UNIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_go_from_the_most_significant_byte_on() {
        let (characters, count) = put([UNIT, 11, 0x4865_6c6c_6f20_776f, 0x726c_6400_0000_0000]).unwrap();
        assert_eq!(&characters[..count], b"Hello world");
        assert_eq!(typed(b"Hello world"), [11, 0x4865_6c6c_6f20_776f, 0x726c_6400_0000_0000]);
        assert_eq!(typed(&[0x41; 20]), [16, 0x4141_4141_4141_4141, 0x4141_4141_4141_4141]);
        assert_eq!(typed(b""), [0, 0, 0]);
    }

    #[test]
    fn foreign_terminals_and_too_many_characters_are_refused() {
        assert_eq!(put([1, 1, 0, 0]), Err(Code::PARAMETER));
        assert_eq!(put([UNIT, 17, 0, 0]), Err(Code::PARAMETER));
        assert_eq!(put([UNIT, u64::MAX, 0, 0]), Err(Code::PARAMETER));
        assert_eq!(get(UNIT | 1 << 32), Err(Code::PARAMETER));
        assert_eq!(get(0), Ok(()));
    }
}
