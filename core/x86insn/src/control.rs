// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Moves to the task priority register, CR8, for machines on which the hypervisor must emulate them.

use iced_x86::{Decoder, DecoderError, DecoderOptions, Instruction, Mnemonic, Register};

use crate::MAX_LENGTH;
use crate::decode::register;
use crate::operation::Gpr;

/// A move from a general register to CR8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoveToCr8 {
    /// The source.
    pub from: Gpr,
    /// Bytes of the instruction.
    pub length: u8,
}

/// Why bytes are no move to CR8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoMove {
    /// They are something else.
    Other,
    /// They are not all of an instruction.
    Short,
}

/// Decodes an instruction for code of 16, 32 or 64 bits: MOV with REX.R, or MOV to CR0 with LOCK, which AMD's CPUs take for CR8
/// (APM vol. 3, "MOV CRn").
///
/// # Errors
/// When the bytes are no such move, or not all of it.
pub fn move_to_cr8(bytes: &[u8], bitness: u32) -> Result<MoveToCr8, NoMove> {
    let bytes = bytes.get(..MAX_LENGTH).unwrap_or(bytes);
    let decoder = Decoder::try_with_ip(bitness, bytes, 0, DecoderOptions::AMD);
    let mut decoder = decoder.map_err(|_| NoMove::Other)?;
    let instruction: Instruction = decoder.decode();
    if decoder.last_error() == DecoderError::NoMoreBytes {
        return Err(NoMove::Short);
    }
    let is_move = instruction.mnemonic() == Mnemonic::Mov && instruction.op_register(0) == Register::CR8;
    match register(&instruction, 1) {
        Some(from) if is_move && !instruction.is_invalid() => {
            Ok(MoveToCr8 { from, length: instruction.len() as u8 })
        }
        _ => Err(NoMove::Other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn decoded(bytes: &[u8], bitness: u32, number: u8, size: u8) {
        let from = Gpr { number, size, high: false };
        let length = bytes.len() as u8;
        assert_eq!(move_to_cr8(bytes, bitness), Ok(MoveToCr8 { from, length }));
        for fewer in 0..bytes.len() {
            assert_eq!(move_to_cr8(&bytes[..fewer], bitness), Err(NoMove::Short), "not all of it");
        }
    }

    #[test]
    fn all_forms_of_the_move() {
        decoded(&[0x44, 0x0f, 0x22, 0xc0], 64, 0, 8);
        decoded(&[0x45, 0x0f, 0x22, 0xc7], 64, 15, 8);
        // The mode of the ModRM byte is not looked at, nor are prefixes that mean nothing here.
        decoded(&[0x44, 0x0f, 0x22, 0x03], 64, 3, 8);
        decoded(&[0x66, 0x2e, 0x4c, 0x0f, 0x22, 0xc4], 64, 4, 8);
        decoded(&[0xf0, 0x0f, 0x22, 0xc1], 64, 1, 8);
        decoded(&[0xf0, 0x0f, 0x22, 0xc6], 32, 6, 4);
        decoded(&[0xf0, 0x0f, 0x22, 0xc6], 16, 6, 4);
    }

    #[test]
    fn other_instructions_are_none() {
        // MOV to CR0, MOV from CR8, MOV of general registers, an opcode that there is not, more prefixes than an instruction has.
        for bytes in [
            &[0x0f, 0x22, 0xc0][..],
            &[0x44, 0x0f, 0x20, 0xc0],
            &[0x48, 0x89, 0xc0],
            &[0x44, 0x0f, 0x24, 0xc0],
            &[0x66; 15],
            &[0x66; 16],
        ] {
            assert_eq!(move_to_cr8(bytes, 64), Err(NoMove::Other), "{bytes:x?}");
        }
        assert_eq!(move_to_cr8(&[0x66; 14], 64), Err(NoMove::Short));
    }
}
