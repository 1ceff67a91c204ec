// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guarded vector tables of the built image: between the exit and the remedy there is nothing that a guest's
//! training could steer, and behind it everything is as without.

use std::path::Path;

use super::image::{Program, target};

/// The tables that have guarded copies, and what a vector of each begins with and a guarded one has done for it.
const TABLES: [(&str, &[u32]); 6] = [
    ("vectors", &[SAVE]),
    ("vectors_timed", &[SAVE, STAMP]),
    ("vectors_gicv2", &[SAVE]),
    ("vectors_gicv2_timed", &[SAVE, STAMP]),
    ("vectors_legacy", &[SAVE]),
    ("vectors_legacy_timed", &[SAVE, STAMP]),
];
/// The copies follow each other at a label with this ending.
const GUARDED: &str = "_guarded";
/// Guarded copies of a table.
const COPIES: u64 = 4;
/// Bytes of a table, and of a vector.
const TABLE: u64 = 0x800;
const VECTOR: u64 = 0x80;
/// Vectors of exits from a guest: the second half of the table.
const FIRST: u64 = TABLE / 2;
/// `stp x0, x1, [sp]`, and `mrs x0, cntpct_el0`.
const SAVE: u32 = 0xa900_07e0;
const STAMP: u32 = 0xd53b_e020;
/// `isb`, and `smc #0`, which ends with an exception return: one of them orders what follows behind the remedy.
const BARRIERS: [u32; 2] = [0xd503_3fdf, 0xd400_0003];

/// Looks at every guarded vector.
///
/// # Errors
/// Names the first that is not as it must be.
pub fn check(elf: &Path) -> Result<(), String> {
    let program = Program::load(elf)?;
    for (table, done) in TABLES {
        let address = |name: &str| program.symbol(name).ok_or_else(|| format!("the image has no {name}"));
        let (plain, guarded) = (address(table)?, address(&format!("{table}{GUARDED}"))?);
        if !guarded.is_multiple_of(TABLE) {
            return Err(format!("{table}{GUARDED} is not aligned as a vector table"));
        }
        for copy in 0..COPIES {
            for offset in (FIRST..TABLE).step_by(VECTOR as usize) {
                let start = guarded + copy * TABLE + offset;
                if !program.words(plain + offset, VECTOR).starts_with(done) {
                    return Err(format!("{table} has another vector at {offset:#x}"));
                }
                vector(&program.words(start, VECTOR), done, start, plain + offset)
                    .map_err(|what| format!("{table}{GUARDED}, copy {copy}, vector {offset:#x}: {what}"))?;
            }
        }
    }
    Ok(())
}

/// Looks at one guarded vector at `start`, of the plain one at `plain`, which begins with `done`.
fn vector(words: &[u32], done: &[u32], start: u64, plain: u64) -> Result<(), String> {
    if !words.starts_with(done) {
        return Err("it does not begin as the unguarded one".to_owned());
    }
    let behind = plain + 4 * done.len() as u64;
    let mut ordered = false;
    for (word, address) in words.iter().zip((start..).step_by(4)) {
        ordered |= BARRIERS.contains(word);
        if is_steered(*word) {
            return Err(format!("an indirect branch at {address:#x}"));
        }
        match target(*word, address) {
            Some(to) if to == behind && ordered => return Ok(()),
            Some(to) if to == behind => return Err("nothing orders it behind the remedy".to_owned()),
            Some(to) if !(start..start + VECTOR).contains(&to) => {
                return Err(format!("it branches to {to:#x}, and not to {behind:#x}"));
            }
            _ => {}
        }
    }
    Err("it does not go on in the plain table".to_owned())
}

/// BR, BLR, RET, ERET and their variants with pointer authentication (Arm ARM C4.1.95): branches whose target is
/// predicted.
fn is_steered(word: u32) -> bool {
    word >> 25 == 0b110_1011
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 0x1_0400;
    const PLAIN: u64 = 0x8400;
    const NOP: u32 = 0xd503_201f;
    const ISB: u32 = BARRIERS[0];

    /// A direct branch at word `place` of the vector.
    fn branch(place: u64, to: u64) -> u32 {
        let offset = to.wrapping_sub(START + 4 * place) as i64 / 4;
        0x1400_0000 | offset as u32 & 0x03ff_ffff
    }

    fn judged(words: &[u32]) -> Result<(), String> {
        vector(words, &[SAVE], START, PLAIN)
    }

    #[test]
    fn good_vectors_pass() {
        assert_eq!(judged(&[SAVE, ISB, branch(2, PLAIN + 4)]), Ok(()));
        let loops = [SAVE, branch(1, START + 8), NOP, ISB, branch(4, PLAIN + 4), 0xd65f_03c0];
        assert_eq!(judged(&loops), Ok(()), "what lies behind the branch is not executed");
    }

    #[test]
    fn bad_vectors_are_found() {
        let bad: [(&[u32], &str); 6] = [
            (&[NOP, ISB, branch(2, PLAIN + 4)], "does not begin"),
            (&[SAVE, 0xd63f_0060, ISB, branch(3, PLAIN + 4)], "indirect"),
            (&[SAVE, 0xd65f_03c0, ISB, branch(3, PLAIN + 4)], "indirect"),
            (&[SAVE, NOP, branch(2, PLAIN + 4)], "orders"),
            (&[SAVE, ISB, branch(2, PLAIN)], "branches to"),
            (&[SAVE, ISB, NOP], "does not go on"),
        ];
        for (words, expected) in bad {
            let found = judged(words).unwrap_err();
            assert!(found.contains(expected), "{found}");
        }
        let timed = [SAVE, STAMP, ISB, branch(3, PLAIN + 8)];
        assert_eq!(vector(&timed, &[SAVE, STAMP], START, PLAIN), Ok(()));
        assert!(vector(&timed, &[SAVE], START, PLAIN).is_err(), "it goes on too far behind");
    }
}
