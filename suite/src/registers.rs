// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The registers of the guest on the way of an exit through the vectors of the built image: every instruction from a vector to
//! the return is followed, and so is every light handler. What is changed must have been stored before, and must be loaded again.

use std::collections::BTreeSet;
use std::path::Path;

use super::clobbers::{SP, changed};
use super::image::{Program, target};

/// The tables of vectors.
const TABLES: [&str; 6] = [
    "vectors",
    "vectors_timed",
    "vectors_gicv2",
    "vectors_gicv2_timed",
    "vectors_legacy",
    "vectors_legacy_timed",
];
/// Vectors of exits from a guest: from the middle of a table, this far from each other.
const FIRST: u64 = 0x400;
const VECTOR: u64 = 0x80;
const VECTORS: u64 = 8;
/// Names of light handlers begin so. All others preserve what the C ABI says.
const LIGHT: &str = "turnstile_light_";
/// x0 to x18 and x30: what a function may change.
const CLOBBERABLE: u32 = 0x4007_ffff;
/// Labels of tables that set a register to what the guest has read begin so.
const DELIVERY: &str = "deliver_";

/// Where an exit is, and what is known of the guest's registers there, as sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    address: u64,
    /// In their slots of the frame.
    stored: u32,
    /// Not the guest's any more.
    lost: u32,
}

/// Follows every exit of an image.
///
/// # Errors
/// Names the first register that an exit changes without having stored it, or that the guest does not get back.
pub fn check(elf: &Path) -> Result<(), String> {
    let program = Program::load(elf)?;
    for table in TABLES {
        let start = program.symbol(table).ok_or_else(|| format!("the image has no {table}"))?;
        for vector in 0..VECTORS {
            let returns = follow(&program, start + FIRST + vector * VECTOR)
                .map_err(|what| format!("{table}, vector {vector}: {what}"))?;
            if returns == 0 {
                return Err(format!("{table}, vector {vector}: it never returns"));
            }
        }
    }
    Ok(())
}

/// Follows all ways from a vector, and counts returns to the guest.
fn follow(program: &Program, vector: u64) -> Result<usize, String> {
    let mut todo = vec![Place { address: vector, stored: 0, lost: 0 }];
    let mut seen = BTreeSet::new();
    let mut returns = 0;
    while let Some(place) = todo.pop() {
        if !seen.insert(place) {
            continue;
        }
        let word = program.words(place.address, 4).first().copied().unwrap_or(0);
        let at = |what: String| format!("{what} at {:#x}", place.address);
        match word {
            ERET if place.lost == 0 => returns += 1,
            ERET => return Err(at(format!("{} lost", names(place.lost)))),
            BR_X9 => todo.extend(table(program, place).ok_or_else(|| at("an unknown way".to_owned()))?),
            _ if word >> 26 == CALL => todo.push(call(program, place, word).map_err(at)?),
            _ if word >> 26 == BRANCH => todo.push(Place { address: branch(word, place.address), ..place }),
            _ => {
                todo.extend(conditional(word, place.address).map(|address| Place { address, ..place }));
                todo.push(step(program, place, word).map_err(at)?);
            }
        }
    }
    Ok(returns)
}

const ERET: u32 = 0xd69f_03e0;
const BR_X9: u32 = 0xd61f_0120;
/// The highest six bits of B and BL.
const BRANCH: u32 = 0b00_0101;
const CALL: u32 = 0b10_0101;

/// Where B or BL leads.
fn branch(word: u32, address: u64) -> u64 {
    target(word, address).unwrap_or(address)
}

/// Where CBZ, CBNZ, TBZ or TBNZ leads if it branches.
fn conditional(word: u32, address: u64) -> Option<u64> {
    let words = match word >> 25 & 0x3f {
        0b01_1010 => (word << 8) as i32 >> 13,  // imm19
        0b01_1011 => (word << 13) as i32 >> 18, // imm14
        _ => return None,
    };
    Some(address.wrapping_add_signed(4 * i64::from(words)))
}

/// The ways of `adr x9, TABLE; add x9, x9, x8, lsl #SHIFT; br x9`: the classes of exceptions, or the transfer registers.
fn table(program: &Program, place: Place) -> Option<impl Iterator<Item = Place>> {
    let base = place.address.checked_sub(8)?;
    let [adr, add] = program.words(base, 8)[..] else { return None };
    if adr >> 24 & 0x9f != 0x10 || adr & 31 != 9 || add & !0xfc00 != 0x8b08_0129 {
        return None;
    }
    let offset = (((adr << 8) as i32 >> 13) * 4) | (adr >> 29 & 3) as i32;
    let start = base.wrapping_add_signed(offset.into());
    let (shift, ways) = match add >> 10 & 63 {
        6 => (6, 64),
        3 => (3, 32),
        _ => return None,
    };
    Some((0..ways).map(move |way| Place { address: start + (way << shift), ..place }))
}

/// A call: of a light handler, which is followed, or of another function, before which everything must have been stored that it may change.
fn call(program: &Program, place: Place, word: u32) -> Result<Place, String> {
    let callee = branch(word, place.address);
    let name = program.name(callee);
    let clobbered = if name.starts_with(LIGHT) { leaf(program, callee)? } else { CLOBBERABLE };
    let missing = (clobbered | 1 << 30) & !place.stored;
    if missing != 0 {
        return Err(format!("{name} changes {}, not stored", names(missing)));
    }
    Ok(Place { address: place.address + 4, lost: place.lost | clobbered | 1 << 30, ..place })
}

/// What a light handler changes, which calls nothing and has no stack frame.
fn leaf(program: &Program, start: u64) -> Result<u32, String> {
    let (name, mut all) = (program.name(start), 0);
    for (word, address) in program.body(start).into_iter().zip((start..).step_by(4)) {
        let to = target(word, address).filter(|to| program.function(*to) != Some(start));
        if let Some(to) = to {
            return Err(format!(
                "{name} leads to {}",
                program.function(to).map_or("?", |to| program.name(to))
            ));
        }
        let changed =
            changed(word).ok_or_else(|| format!("{name} has {word:#010x}, of which nothing is known"))?;
        if changed & SP != 0 {
            return Err(format!("{name} has a stack frame"));
        }
        all |= changed;
    }
    match all {
        0 => Err(format!("{name} is empty")),
        all => Ok(all),
    }
}

/// Any other instruction.
fn step(program: &Program, place: Place, word: u32) -> Result<Place, String> {
    let mut next = Place { address: place.address + 4, ..place };
    let delivers = program.label(place.address).is_some_and(|name| name.starts_with(DELIVERY));
    if let Some((load, registers)) = frame_access(word) {
        for (register, offset) in registers {
            let bit = 1 << register;
            let its_own = slot(register) == offset;
            match load {
                true if its_own && place.stored & bit != 0 => next.lost &= !bit,
                true => next.lost |= bit,
                false if its_own && place.lost & bit == 0 => next.stored |= bit,
                false => {
                    let owner = (0..31).find(|n| slot(*n) == offset && *n != 31).map_or(0, |n| 1 << n);
                    match delivers {
                        true if place.stored & owner == 0 => {
                            return Err("delivered to an unused slot".to_owned());
                        }
                        true => next.lost |= owner, // It has to come from there.
                        false => next.stored &= !owner,
                    }
                }
            }
            if load && place.stored & bit == 0 {
                return Err(format!("x{register} is loaded, not stored"));
            }
        }
        return Ok(next);
    }
    let changed = changed(word).ok_or_else(|| format!("{word:#010x}, of which nothing is known"))?;
    match changed & !place.stored {
        // What the guest has read: what was stored of the register is to be loaded no more.
        _ if delivers => (next.stored, next.lost) = (place.stored & !changed, place.lost & !changed),
        0 => next.lost |= changed,
        missing => return Err(format!("{} changed, not stored", names(missing))),
    }
    Ok(next)
}

/// An LDP, STP, LDR or STR of 64-bit registers relative to the stack pointer, which is the frame: whether it loads, and what from
/// where.
fn frame_access(word: u32) -> Option<(bool, Vec<(u32, u32)>)> {
    let load = word >> 22 & 1 != 0;
    if word >> 5 & 31 != 31 {
        return None;
    }
    match word & 0xffc0_0000 {
        0xa900_0000 | 0xa940_0000 => {
            let offset = 8 * (word >> 15 & 63);
            Some((load, vec![(word & 31, offset), (word >> 10 & 31, offset + 8)]))
        }
        0xf900_0000 | 0xf940_0000 => Some((load, vec![(word & 31, 8 * (word >> 10 & 0xfff))])),
        _ => None,
    }
}

/// The slot of a register (vcpu/frame.rs).
const fn slot(register: u32) -> u32 {
    8 * match register {
        0..=10 => register,
        30 => 11,
        _ => register + 1,
    }
}

/// The registers of a set.
fn names(set: u32) -> String {
    let registers = (0..32).filter(|n| set >> n & 1 != 0);
    registers.map(|n| if n == 31 { "SP".to_owned() } else { format!("x{n}") }).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_are_followed() {
        assert_eq!(conditional(0x3600_0040, 0x1000), Some(0x1008), "tbz w0, #0");
        assert_eq!(conditional(0x35ff_ffe0, 0x1000), Some(0xffc), "cbnz w0");
        assert_eq!(conditional(0xd65f_03c0, 0x1000), None, "ret");
    }

    #[test]
    fn only_pairs_of_whole_registers_go_to_the_frame() {
        assert_eq!(
            frame_access(0xa905_7bea),
            Some((false, vec![(10, 80), (30, 88)])),
            "stp x10, x30, [sp, #80]"
        );
        assert_eq!(frame_access(0xf940_7be0), Some((true, vec![(0, 240)])), "ldr x0, [sp, #240]");
        assert_eq!(frame_access(0xb940_03e0), None, "ldr w0, [sp]");
        assert_eq!(frame_access(0xa9bf_7bfd), None, "stp x29, x30, [sp, #-16]!");
        assert_eq!((slot(10), slot(30), slot(11), slot(29)), (80, 88, 96, 240));
    }

    /// A vector in a program of its own: what is stored, changed and loaded.
    fn followed(words: &[u32]) -> Result<usize, String> {
        follow(&Program::of(words), 0)
    }

    const STORE: u32 = 0xa900_07e0; // stp x0, x1, [sp]
    const LOAD: u32 = 0xa940_07e0; // ldp x0, x1, [sp]
    const CHANGE: u32 = 0xd280_0020; // mov x0, #1

    #[test]
    fn what_is_changed_was_stored_and_comes_back() {
        assert_eq!(followed(&[STORE, CHANGE, LOAD, ERET]), Ok(1));
        for (words, expected) in [
            (&[CHANGE, ERET][..], "x0 changed, not stored at 0x0"),
            (&[CHANGE, STORE, LOAD, ERET], "x0 changed, not stored at 0x0"),
            (&[STORE, CHANGE, ERET], "x0 lost at 0x8"),
            (&[STORE, CHANGE, STORE, LOAD, ERET], "x0 is loaded, not stored at 0xc"),
            (&[STORE, CHANGE, 0xf900_03e3, LOAD, ERET], "x0 is loaded, not stored at 0xc"), // str x3, [sp]
            (&[LOAD, ERET], "x0 is loaded, not stored at 0x0"),
            (&[STORE, 0x0000_0000, LOAD, ERET], "0x00000000, of which nothing is known at 0x4"),
            (&[BR_X9, ERET], "an unknown way at 0x0"),
        ] {
            assert_eq!(followed(words).unwrap_err(), expected);
        }
    }
}
