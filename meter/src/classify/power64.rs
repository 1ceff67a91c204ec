// SPDX-License-Identifier: Apache-2.0 OR MIT
//! POWER instructions by class, from primary and extended opcodes (Power ISA v3.1, appendix of opcode maps).

use super::{Class, Effect};

/// Says what an instruction does. `suffix` is the second word of a prefixed one.
pub fn classify(word: u32, suffix: Option<u32>) -> Effect {
    if let (1, Some(suffix)) = (word >> 26, suffix) {
        return prefixed(word, suffix);
    }
    match word >> 26 {
        16 | 18 => Effect::of(Class::Branches),
        17 => Effect::of(Class::ExceptionEntries), // sc, scv
        19 => opcode_19(word >> 1 & 0x3ff),
        31 => opcode_31(word),
        primary => displacement(primary, word),
    }
}

/// Loads and stores with a displacement.
fn displacement(primary: u32, word: u32) -> Effect {
    let (load, store) = (Effect::memory(true, false), Effect::memory(false, true));
    match (primary, word & 3, word & 7) {
        (32..=35 | 40..=43 | 46 | 48..=51 | 56 | 58, ..) => load,
        (36..=39 | 44 | 45 | 47 | 52..=55 | 62, ..) => store,
        (57, 0 | 2 | 3, _) | (61, _, 1) => load,
        (61, 0 | 2 | 3, _) | (61, _, 5) => store,
        (6, ..) if word & 0xf == 0 => load,
        (6, ..) if word & 0xf == 1 => store,
        _ => Effect::default(),
    }
}

/// Prefixed loads and stores: type 0 has opcodes of its own, type 2 those of the plain ones.
fn prefixed(prefix: u32, suffix: u32) -> Effect {
    let primary = suffix >> 26;
    match (prefix >> 24 & 3, primary) {
        (0, 41..=43 | 50 | 51 | 56..=58) => Effect::memory(true, false),
        (0, 46 | 47 | 54 | 55 | 60..=62) => Effect::memory(false, true),
        (2, 32..=55) => displacement(primary, suffix),
        _ => Effect::default(),
    }
}

fn opcode_19(extended: u32) -> Effect {
    match extended {
        16 | 528 | 560 => Effect::of(Class::Branches),
        18 | 82 | 274 => Effect::of(Class::ExceptionReturns), // rfid, rfscv, hrfid
        150 => Effect::of(Class::Isync),
        _ => Effect::default(),
    }
}

/// Opcode 31 holds the instructions with two registers: indexed loads and stores, and all of the system's.
fn opcode_31(word: u32) -> Effect {
    let extended = word >> 1 & 0x3ff;
    match extended {
        83 => Effect::register(false, "MSR", true),
        146 | 178 => Effect::register(true, "MSR", true),
        339 => move_from(spr(word)),
        467 => move_to(spr(word)),
        371 => Effect::register(false, "TB", true).and(Class::Mftb),
        306 => Effect::of(Class::Tlbie),
        274 => Effect::of(Class::Tlbiel),
        566 => Effect::of(Class::Tlbsync),
        598 if word >> 21 & 7 == 2 => Effect::of(Class::Ptesync),
        598 | 854 => Effect::of(Class::Sync),
        338 | 402 | 434 | 466 | 498 | 850 | 851 | 915 | 979 => Effect::of(Class::Slb),
        142 | 174 | 206 | 238 | 886 => Effect::of(Class::Doorbells),
        789 | 821 | 853 | 885 => Effect::memory(true, false).and(Class::CiLoads),
        917 | 949 | 981 | 1013 => Effect::memory(false, true).and(Class::CiStores),
        150 | 182 | 214 | 694 | 726 => Effect::memory(false, true).and(Class::Atomics), // store-conditionals
        582 | 614 => Effect::memory(true, true).and(Class::Atomics),                    // lwat, ldat
        710 | 742 => Effect::memory(true, true).and(Class::Atomics),                    // stwat, stdat
        _ if LOADS.contains(&extended) => Effect::memory(true, false),
        _ if STORES.contains(&extended) => Effect::memory(false, true),
        _ => Effect::default(),
    }
}

/// The number of the register in an mfspr or mtspr: its halves are swapped.
const fn spr(word: u32) -> u32 {
    word >> 16 & 0x1f | (word >> 11 & 0x1f) << 5
}

/// XER, LR, CTR, VRSAVE and TAR are the program's own, no system registers.
const fn is_user(spr: u32) -> bool {
    matches!(spr, 1 | 8 | 9 | 256 | 815)
}

/// SPRG0 to SPRG3, USPRG3, HSPRG0 and HSPRG1 hold what software puts there.
const fn is_scratch(spr: u32) -> bool {
    matches!(spr, 259 | 272..=275 | 304 | 305)
}

fn move_from(spr: u32) -> Effect {
    match spr {
        _ if is_user(spr) => Effect::default(),
        268 | 269 => Effect::register(false, format!("SPR{spr}"), true).and(Class::Mftb),
        _ => Effect::register(false, format!("SPR{spr}"), !is_scratch(spr)).and(Class::Mfspr),
    }
}

fn move_to(spr: u32) -> Effect {
    match spr {
        _ if is_user(spr) => Effect::default(),
        _ => Effect::register(true, format!("SPR{spr}"), !is_scratch(spr)).and(Class::Mtspr),
    }
}

/// Extended opcodes of opcode 31 that load, besides those that have a class of their own.
const LOADS: &[u32] = &[
    7, 12, 20, 21, 23, 39, 52, 53, 55, 71, 76, 84, 87, 103, 116, 119, 268, 269, 276, 279, 301, 311, 332, 333,
    341, 343, 359, 364, 373, 375, 524, 532, 533, 534, 535, 567, 588, 597, 599, 631, 780, 781, 790, 791, 812,
    813, 844, 855, 876, 887,
];
/// Those that store.
const STORES: &[u32] = &[
    135, 140, 149, 151, 167, 181, 183, 199, 215, 231, 247, 396, 397, 407, 429, 439, 461, 487, 652, 660, 661,
    662, 663, 695, 716, 725, 727, 759, 908, 909, 918, 919, 940, 941, 972, 983, 1004,
];

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: &[Class] = &[];

    fn classes(word: u32) -> Vec<Class> {
        classify(word, None).classes.iter().collect()
    }

    #[test]
    fn instructions_have_their_classes() {
        use Class::*;
        let read: &[Class] = &[RegisterReads, HardwareReads, Mfspr];
        let write: &[Class] = &[RegisterWrites, HardwareWrites, Mtspr];
        for (word, what, expected) in [
            (0x7c7a_02a6, "mfspr r3, SRR0", read),
            (0x7c7f_43a6, "mtspr 287, r3", write),
            (0x7c68_02a6, "mflr r3", NONE),
            (0x7c69_03a6, "mtctr r3", NONE),
            (0x7c70_42a6, "mfspr r3, SPRG0", &[RegisterReads, Mfspr]),
            (0x7c6c_42a6, "mftb r3", &[RegisterReads, HardwareReads, Mftb]),
            (0x7c60_00a6, "mfmsr r3", &[RegisterReads, HardwareReads]),
            (0x7c60_0164, "mtmsrd r3", &[RegisterWrites, HardwareWrites]),
            (0x7c00_04ac, "sync", &[Sync]),
            (0x7c20_04ac, "lwsync", &[Sync]),
            (0x7c40_04ac, "ptesync", &[Ptesync]),
            (0x7c00_06ac, "eieio", &[Sync]),
            (0x4c00_012c, "isync", &[Isync]),
            (0x7c00_046c, "tlbsync", &[Tlbsync]),
            (0x7c60_2264, "tlbie", &[Tlbie]),
            (0x7c60_0a24, "tlbiel", &[Tlbiel]),
            (0x7c00_03e4, "slbia", &[Slb]),
            (0x7c60_0324, "slbmte", &[Slb]),
            (0x7c00_199c, "msgsnd r3", &[Doorbells]),
            (0x7c60_1eaa, "lbzcix r3, 0, r3", &[Loads, CiLoads]),
            (0x7c60_1fea, "stdcix r3, 0, r3", &[Stores, CiStores]),
            (0x4c00_0024, "rfid", &[ExceptionReturns]),
            (0x4c00_0224, "hrfid", &[ExceptionReturns]),
            (0x4400_0022, "sc 1", &[ExceptionEntries]),
            (0x4e80_0020, "blr", &[Branches]),
            (0x4e80_0421, "bctrl", &[Branches]),
            (0x4bff_fffc, "b", &[Branches]),
            (0x4182_0010, "beq", &[Branches]),
            (0xe861_0010, "ld r3, 16(r1)", &[Loads]),
            (0xf861_0010, "std r3, 16(r1)", &[Stores]),
            (0xf821_ffe1, "stdu r1, -32(r1)", &[Stores]),
            (0x8061_0010, "lwz r3, 16(r1)", &[Loads]),
            (0x9061_0010, "stw r3, 16(r1)", &[Stores]),
            (0x7c61_202a, "ldx r3, r1, r4", &[Loads]),
            (0x7c61_212a, "stdx r3, r1, r4", &[Stores]),
            (0x7c60_20a8, "ldarx r3, 0, r4", &[Loads]),
            (0x7c60_21ad, "stdcx. r3, 0, r4", &[Stores, Atomics]),
            (0x7c63_2214, "add r3, r3, r4", NONE),
            (0x6000_0000, "nop", NONE),
            (0x3860_0001, "li r3, 1", NONE),
        ] {
            assert_eq!(classes(word), expected, "{what}");
        }
    }

    #[test]
    fn registers_are_named_by_number() {
        let access = |word| classify(word, None).access.unwrap();
        assert_eq!(access(0x7c7a_02a6).register, "SPR26");
        assert!(access(0x7c7f_43a6).write);
        assert_eq!(access(0x7c7f_43a6).register, "SPR287");
    }

    #[test]
    fn prefixed_instructions_have_the_class_of_what_they_do() {
        let classes = |prefix, suffix| classify(prefix, Some(suffix)).classes.iter().collect::<Vec<_>>();
        assert_eq!(classes(0x0400_0000, 0xe461_0010), [Class::Loads], "pld");
        assert_eq!(classes(0x0400_0000, 0xf461_0010), [Class::Stores], "pstd");
        assert_eq!(classes(0x0600_0000, 0x8061_0010), [Class::Loads], "plwz");
        assert_eq!(classes(0x0600_0000, 0x3861_0010), [], "paddi");
    }

    #[test]
    fn the_lists_are_apart() {
        assert!(LOADS.iter().all(|load| !STORES.contains(load)));
    }
}
