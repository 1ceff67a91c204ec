// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the light handlers of hypervisor calls change in the built image for POWER. Their entries (`exit/calls.S`) neither store nor
//! load a guest's registers: so what a handler writes, its entry clears; it calls nothing; and R1, R2, R13, LR, XER and CTR are the
//! guest's again, or zero, when the guest goes on.

use std::path::Path;

use super::image_power::{Program, target};

/// The names of the entries that call a handler, and of the handlers, before that of the call.
const ENTRY: &str = "turnstile_call_";
const HANDLER: &str = "turnstile_light_";
/// So many calls are light at least: fewer were not found.
const FEWEST: usize = 8;
const RFID: u32 = 0x4c00_0024;
/// `mtctr r0` and `mtcrf 0xc7, r0`.
const CLEAR_CTR: u32 = 0x7c09_03a6;
const CLEAR_CR: u32 = 0x7c0c_7120;
/// `mtxer r0`: the last, if it is there.
const CLEAR_XER: u32 = 0x7c01_03a6;
/// Those that hold a call's answer.
const ANSWER: [u8; 2] = [3, 4];
/// The first of those that compiled code preserves.
const PRESERVED: u8 = 14;

/// What an instruction changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Effect {
    /// General registers.
    registers: [Option<u8>; 2],
    /// It may set a bit of XER.
    xer: bool,
    /// It changes LR: it is a call, or moves something there.
    link: bool,
}

impl Effect {
    const NOTHING: Self = Self { registers: [None; 2], xer: false, link: false };

    fn of(register: u32) -> Self {
        Self { registers: [Some(register as u8), None], ..Self::NOTHING }
    }

    /// An access that may update its address register.
    fn access(target: Option<u32>, update: Option<u32>) -> Self {
        Self { registers: [target.map(|n| n as u8), update.map(|n| n as u8)], ..Self::NOTHING }
    }

    fn with_xer(self, xer: bool) -> Self {
        Self { xer: self.xer || xer, ..self }
    }
}

/// What an instruction changes (Power ISA 3.0B Books I to III); `None` of one that is not known here.
fn effect(word: u32) -> Option<Effect> {
    let (rt, ra) = (word >> 21 & 31, word >> 16 & 31);
    let link = Effect { link: word & 1 != 0, ..Effect::NOTHING };
    Some(match word >> 26 {
        // CMPLI, CMPI; traps.
        2 | 3 | 10 | 11 => Effect::NOTHING,
        // MULLI, ADDI, ADDIS.
        7 | 14 | 15 => Effect::of(rt),
        // SUBFIC, ADDIC, ADDIC.
        8 | 12 | 13 => Effect::of(rt).with_xer(true),
        // BC, B; those to registers, instructions on CR, ISYNC.
        16 | 18 | 19 => link,
        // Rotates and masks, immediate logic.
        20 | 21 | 23..=30 => Effect::of(ra),
        31 => extended(word)?,
        32 | 34 | 40 | 42 => Effect::of(rt),
        33 | 35 | 41 | 43 => Effect::access(Some(rt), Some(ra)),
        36 | 38 | 44 => Effect::NOTHING,
        37 | 39 | 45 => Effect::access(None, Some(ra)),
        58 if word & 3 == 1 => Effect::access(Some(rt), Some(ra)),
        58 => Effect::of(rt),
        62 if word & 3 == 1 => Effect::access(None, Some(ra)),
        62 if word & 3 == 0 => Effect::NOTHING,
        _ => return None,
    })
}

/// The same of opcode 31.
fn extended(word: u32) -> Option<Effect> {
    let (rt, ra) = (word >> 21 & 31, word >> 16 & 31);
    let operation = word >> 1 & 0x3ff;
    if operation & 31 == 15 {
        // ISEL.
        return Some(Effect::of(rt));
    }
    Some(match operation {
        // CMP, CMPL; SYNC, EIEIO, MSGSND; MTCRF.
        0 | 32 | 598 | 854 | 206 | 144 => Effect::NOTHING,
        // AND, ANDC, OR, ORC, XOR, NAND, NOR, EQV; shifts; counts; extensions of the sign; EXTSWSLI.
        28 | 60 | 444 | 412 | 316 | 476 | 124 | 284 => Effect::of(ra),
        24 | 27 | 536 | 539 | 26 | 58 | 538 | 570 | 954 | 922 | 986 | 890 | 891 => Effect::of(ra),
        // Those that set CA: SRAW, SRAWI, SRAD, SRADI.
        792 | 824 | 794 | 826 | 827 => Effect::of(ra).with_xer(true),
        // ADD, SUBF, NEG, MULLD, MULLW, MULHD, MULHDU, MULHW, MULHWU.
        266 | 40 | 104 | 233 | 235 | 73 | 9 | 75 | 11 => Effect::of(rt),
        // The same with the bit for an overflow, and those with a carry.
        778 | 552 | 616 | 745 | 747 | 10 | 8 | 138 | 136 | 202 | 200 | 234 | 232 => {
            Effect::of(rt).with_xer(true)
        }
        // Loads: plain, byte-reversed, with a reservation, caching inhibited; then those with an update.
        23 | 21 | 87 | 279 | 343 | 341 | 532 | 534 | 790 | 20 | 84 | 52 | 116 | 789 | 821 | 853 | 885 => {
            Effect::of(rt)
        }
        55 | 53 | 119 | 311 | 375 | 373 => Effect::access(Some(rt), Some(ra)),
        // Stores likewise.
        151 | 149 | 215 | 407 | 662 | 660 | 918 | 150 | 214 | 917 | 949 | 981 | 1013 => Effect::NOTHING,
        183 | 181 | 247 | 439 => Effect::access(None, Some(ra)),
        // MFSPR, MFMSR, MFCR.
        339 | 83 | 19 => Effect::of(rt),
        467 => {
            let number = ra | (word >> 6 & 0x3e0);
            Effect { xer: number == 1, link: number == 8, ..Effect::NOTHING }
        }
        _ => return None,
    })
}

/// Looks at the entry of every light call, and at its handler.
///
/// # Errors
/// Names the first that changes something that it does not put in order.
pub fn check(elf: &Path) -> Result<(), String> {
    let program = Program::load(elf)?;
    let mut seen = 0;
    for (name, start) in program.named(ENTRY) {
        let entry: Vec<_> = program.code(start).take_while(|(_, word)| *word != RFID).collect();
        let end = start + 4 * entry.len() as u64;
        if !name.ends_with("_leave") && !program.returns().contains(&end) {
            return Err(format!("{name} returns at {end:#x}, which no guard replaces"));
        }
        let handler = format!("{HANDLER}{}", name.trim_start_matches(ENTRY));
        let Some(handler) = program.address(&handler) else { continue };
        if !entry.iter().any(|(address, word)| word & 1 != 0 && target(*word, *address) == Some(handler)) {
            return Err(format!("{name} does not call its handler"));
        }
        // What is behind a function's code, and no instruction, begins with a word of zeros.
        let body: Vec<_> = program.body(handler).take_while(|(_, word)| *word != 0).collect();
        is_leaf(&body).and_then(|()| judge(&entry, &body)).map_err(|what| format!("{name}: {what}"))?;
        seen += 1;
    }
    if seen < FEWEST { Err(format!("{seen} light calls in the image, expected more")) } else { Ok(()) }
}

/// Fails if a handler leaves itself.
fn is_leaf(body: &[(u64, u32)]) -> Result<(), String> {
    let inside = |to: u64| body.iter().any(|(address, _)| *address == to);
    let leaves = |(address, word): &&(u64, u32)| target(*word, *address).is_some_and(|to| !inside(to));
    match body.iter().find(leaves) {
        Some((address, _)) => Err(format!("the handler branches elsewhere at {address:#x}")),
        None => Ok(()),
    }
}

/// Fails if an entry does not clear what its handler and itself change.
fn judge(entry: &[(u64, u32)], handler: &[(u64, u32)]) -> Result<(), String> {
    let words: Vec<u32> = entry.iter().map(|(_, word)| *word).collect();
    if !words.contains(&CLEAR_CTR) || !words.contains(&CLEAR_CR) {
        return Err("CTR or CR is not cleared".to_owned());
    }
    let clears_xer = words.last() == Some(&CLEAR_XER);
    for (nth, &(address, word)) in handler.iter().chain(entry).enumerate() {
        let found = effect(word).ok_or_else(|| format!("{word:#010x} at {address:#x} is not known here"))?;
        let is_handlers = nth < handler.len();
        if found.xer && !clears_xer || is_handlers && found.link {
            return Err(format!("{word:#010x} at {address:#x} changes XER or LR"));
        }
        for register in found.registers.into_iter().flatten() {
            match register {
                register if ANSWER.contains(&register) => {}
                1 if !is_handlers => {}
                // Stored and loaded again by the handler itself.
                PRESERVED.. if is_handlers => {}
                0 | 5..=12 if last(&words, register) == Some(14 << 26 | u32::from(register) << 21) => {}
                _ => return Err(format!("R{register} is changed at {address:#x}, and not cleared")),
            }
        }
    }
    Ok(())
}

/// The last instruction of an entry that writes a register.
fn last(words: &[u32], register: u8) -> Option<u32> {
    let writes =
        |word: &&u32| effect(**word).is_some_and(|effect| effect.registers.contains(&Some(register)));
    words.iter().rfind(writes).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_seen() {
        let registers = |word| effect(word).expect("it is known").registers;
        assert_eq!(registers(0xe864_0000), [Some(3), None]); // ld r3, 0(r4)
        assert_eq!(registers(0xe864_0001), [Some(3), Some(4)]); // ldu r3, 0(r4)
        assert_eq!(registers(0xf864_0001), [None, Some(4)]); // stdu r3, 0(r4)
        assert_eq!(registers(0x7c64_2a14), [Some(3), None]); // add r3, r4, r5
        assert_eq!(registers(0x7c83_2838), [Some(3), None]); // and r3, r4, r5
        assert_eq!(registers(0x7c60_20a8), [Some(3), None]); // ldarx r3, 0, r4
        assert_eq!(registers(0x7c60_21ad), [None; 2]); // stdcx. r3, 0, r4
        assert_eq!(registers(0x7c65_209e), [Some(3), None]); // isel r3, r5, r4, 2
        assert!(effect(0x3064_0001).expect("it is known").xer); // addic r3, r4, 1
        assert!(effect(0x7c61_03a6).expect("it is known").xer); // mtxer r3
        assert!(effect(0x7c68_03a6).expect("it is known").link); // mtlr r3
        assert!(effect(0x4e80_0421).expect("it is known").link); // bctrl
        assert_eq!(effect(0xf000_04d0), None, "of vectors nothing is known");
    }

    /// An entry that clears R0, R5 and R12, and so many more.
    fn entry(more: &[u32]) -> Vec<(u64, u32)> {
        let words = [0xe861_0150, 0xe8a1_0150, 0x3800_0000, CLEAR_CTR, 0x38a0_0000, 0x3980_0000];
        let words = words.iter().chain(more).copied().chain([CLEAR_CR]);
        (0x1000..).step_by(4).zip(words).collect()
    }

    #[test]
    fn what_is_not_cleared_is_found() {
        let judged = |more: &[u32], word: u32| judge(&entry(more), &[(0x2000, word)]);
        let (li_5, li_6) = (0x38a0_0007, 0x38c0_0007);
        assert_eq!(judged(&[], li_5), Ok(()));
        assert!(judged(&[], li_6).is_err());
        assert_eq!(judged(&[0x38c0_0000], li_6), Ok(()));
        assert!(judged(&[0x38c0_0000, 0x38c0_0001], li_6).is_err(), "something else is last");
        for (word, what) in
            [(0x3840_0000, "R2"), (0x7c61_03a6, "XER"), (0x4800_0009, "LR"), (0x39a0_0000, "R13")]
        {
            assert!(judged(&[], word).unwrap_err().contains(what), "{word:#x}");
        }
        let mut clears = entry(&[]);
        clears.push((0x2000, CLEAR_XER));
        assert_eq!(judge(&clears, &[(0x2000, 0x7c61_03a6)]), Ok(()), "it is cleared");
        let mut late = entry(&[]);
        late.pop();
        assert!(judge(&late, &[]).is_err(), "CR is not cleared");
    }

    #[test]
    fn handlers_stay_in_themselves() {
        assert_eq!(is_leaf(&[(0x10, 0x4800_0004), (0x14, 0x4e80_0020)]), Ok(()));
        assert!(is_leaf(&[(0x10, 0x4800_0008), (0x14, 0x4e80_0020)]).is_err());
    }
}
