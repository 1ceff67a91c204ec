// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guards of the built image for POWER: each does what it is for, before anything that a guest's training could steer, and
//! then what the instruction does that it replaces; the vectors know nothing of them.

use std::path::Path;

use super::image_power::{Program, target};

/// The barrier that each guard of an exit or entry begins with.
const BARRIER: u32 = 0x7e00_06ac;
/// `bl .+4`, which fills an entry of the link stack, and how many entries there are.
const LINK: u32 = 0x4800_0005;
const LINKS: usize = 64;
/// `bcctr 2,0,0`: with assistance one flushes the count cache; without, so many, 32 bytes apart.
const TARGET: u32 = 0x4c40_0420;
const TARGETS: usize = 278;
/// `ori 31,31,0`, `ori 30,30,0`, a write of TRIG2, and what ends prefetched streams.
const NO_SPECULATION: u32 = 0x63ff_0000;
const FLUSH: u32 = 0x63de_0000;
const TRIG2: u32 = 0x7c12_dba6;
const END_STREAMS: u32 = 0x7d40_5a2c;
const RFID: u32 = 0x4c00_0024;
const HRFID: u32 = 0x4c00_0224;

/// Looks at every guard.
///
/// # Errors
/// Names the first that is not as it must be.
pub fn check(elf: &Path) -> Result<(), String> {
    let program = Program::load(elf)?;
    let address = |name: &str| {
        let name = format!("turnstile_{name}");
        program.address(&name).ok_or_else(|| format!("the image has no {name}"))
    };
    let forgetting =
        [("barrier", 0, 0), ("links", LINKS, 0), ("assisted", LINKS, 1), ("software", LINKS, TARGETS)];
    for (kind, place) in [("call", "call_entered"), ("exit", "exit_entered")] {
        let place = address(place)?;
        let replaced = program.words(place).next().unwrap_or_default();
        for (name, links, targets) in forgetting {
            let guard = format!("guard_{kind}_{name}");
            entry(program.code(address(&guard)?), replaced, place, (links, targets))
                .map_err(|what| format!("{guard}: {what}"))?;
        }
    }
    for (kind, replaced) in [("call", RFID), ("exit", HRFID)] {
        if program.words(address(&format!("return_{kind}"))?).next() != Some(replaced) {
            return Err(format!("turnstile_return_{kind} is no return"));
        }
        for name in ["barrier", "instruction", "register", "loads"] {
            let guard = format!("guard_return_{kind}_{name}");
            leave(program.words(address(&guard)?), replaced, name)
                .map_err(|what| format!("{guard}: {what}"))?;
        }
    }
    let place = address("call_checked")?;
    let replaced = program.words(place).next().unwrap_or_default();
    let guard = program.code(address("guard_checked")?);
    checked(guard, replaced, place).map_err(|what| format!("guard_checked: {what}"))
}

/// Looks at a guard of an exit, which forgets so many links and targets.
fn entry(
    code: impl Iterator<Item = (u64, u32)>,
    replaced: u32,
    place: u64,
    expected: (usize, usize),
) -> Result<(), String> {
    let (mut found, mut carried_out) = ((0, 0), false);
    for (nth, (address, word)) in code.enumerate() {
        match word {
            BARRIER if nth == 0 => {}
            _ if nth == 0 => return Err("it does not begin with a barrier".to_owned()),
            LINK => found.0 += 1,
            TARGET => found.1 += 1,
            _ if is_steered(word) => return Err(format!("an indirect branch at {address:#x}")),
            _ => match target(word, address) {
                Some(to) if to == place + 4 && !carried_out => {
                    return Err("the replaced instruction is missing".to_owned());
                }
                Some(to) if to == place + 4 && found != expected => {
                    return Err(format!("it forgets {found:?} links and targets, not {expected:?}"));
                }
                Some(to) if to == place + 4 => return Ok(()),
                Some(to) => return Err(format!("it branches to {to:#x}")),
                None => carried_out |= word == replaced,
            },
        }
    }
    Err("it does not go on behind what it replaces".to_owned())
}

/// Looks at a guard of an entry, which flushes the data cache in the way that its name says.
fn leave(words: impl Iterator<Item = u32>, replaced: u32, name: &str) -> Result<(), String> {
    let words: Vec<u32> = words.take_while(|word| *word != replaced).collect();
    let loads = words.iter().filter(|word| *word >> 26 == 58 && *word >> 16 & 31 == 10).count();
    let good = words.first() == Some(&BARRIER)
        && match name {
            "barrier" => words.len() == 1,
            "instruction" => words[1..] == [NO_SPECULATION, FLUSH],
            "register" => words[1..] == [TRIG2],
            // Eight lines each time round.
            _ => words.contains(&END_STREAMS) && loads == 8 && !words.iter().any(|word| is_steered(*word)),
        };
    if good { Ok(()) } else { Err(format!("{words:x?} before the return")) }
}

/// Looks at the guard behind the check of a call's number.
fn checked(mut code: impl Iterator<Item = (u64, u32)>, replaced: u32, place: u64) -> Result<(), String> {
    let mut next = || code.next().unwrap_or_default();
    let (barrier, load, (address, back)) = (next().1, next().1, next());
    match (barrier, load, target(back, address)) {
        (NO_SPECULATION, word, Some(to)) if word == replaced && to == place + 4 => Ok(()),
        other => Err(format!("{other:x?}")),
    }
}

/// Branches to a register: BCLR, BCCTR, BCTAR (Power ISA 3.0B Book I, 2.4), and returns from interrupts.
fn is_steered(word: u32) -> bool {
    word >> 26 == 19 && matches!(word >> 1 & 0x3ff, 16 | 528 | 560 | 18 | 274) && word != TARGET
}

#[cfg(test)]
mod tests {
    use super::*;

    const MFSPR: u32 = 0x7c1b_02a6;
    const PLACE: u64 = 0x1000;
    const GUARD: u64 = 0x2000;

    fn judged(words: &[u32], expected: (usize, usize)) -> Result<(), String> {
        let back = 18 << 26 | (PLACE + 4).wrapping_sub(GUARD + 4 * words.len() as u64) as u32 & 0x03ff_fffc;
        let words = words.iter().copied().chain([back]);
        entry((GUARD..).step_by(4).zip(words), MFSPR, PLACE, expected)
    }

    #[test]
    fn good_guards_pass_and_bad_ones_are_found() {
        assert_eq!(judged(&[BARRIER, MFSPR], (0, 0)), Ok(()));
        assert_eq!(judged(&[BARRIER, LINK, LINK, TARGET, MFSPR], (2, 1)), Ok(()));
        let bad: [(&[u32], &str); 5] = [
            (&[LINK, LINK, TARGET, MFSPR], "barrier"),
            (&[BARRIER, LINK, TARGET, MFSPR], "forgets"),
            (&[BARRIER, LINK, LINK, TARGET], "missing"),
            (&[BARRIER, 0x4e80_0421, LINK, LINK, TARGET, MFSPR], "indirect"),
            (&[BARRIER, 0x4800_0100, LINK, LINK, TARGET, MFSPR], "branches"),
        ];
        for (words, expected) in bad {
            let found = judged(words, (2, 1)).unwrap_err();
            assert!(found.contains(expected), "{found}");
        }
    }

    #[test]
    fn entries_flush_before_they_return() {
        let judged = |words: &[u32], name| leave(words.iter().copied().chain([RFID]), RFID, name);
        assert_eq!(judged(&[BARRIER], "barrier"), Ok(()));
        assert_eq!(judged(&[BARRIER, NO_SPECULATION, FLUSH], "instruction"), Ok(()));
        assert_eq!(judged(&[BARRIER, TRIG2], "register"), Ok(()));
        for (words, name) in
            [(&[TRIG2][..], "register"), (&[BARRIER, FLUSH], "instruction"), (&[BARRIER], "loads")]
        {
            assert!(judged(words, name).is_err(), "{name}");
        }
    }
}
