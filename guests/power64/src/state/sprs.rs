// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Special-purpose registers that are a guest's own, by groups (Power ISA 3.0B Book III, chapter 4 and section 5.4.4).

use super::word;
use crate::{mfspr, mtspr};

/// One of them.
pub struct Register {
    /// What it is called.
    pub name: &'static str,
    read: fn() -> u64,
    write: fn(u64),
    /// The bits that a guest may choose and that keep their value.
    mask: u64,
}

macro_rules! register {
    ($name:literal, $number:literal, $mask:expr) => {
        Register { name: $name, read: || mfspr!($number), write: |value| mtspr!($number, value), mask: $mask }
    };
}

/// Those that no facility is needed for.
pub static PLAIN: [Register; 7] = [
    register!("SPRG0", 272, u64::MAX),
    register!("TAR", 815, u64::MAX),
    register!("DSCR", 17, 0x1ff_ffff & !0x3f),
    register!("VRSAVE", 256, 0xffff_ffff),
    register!("DAR", 19, u64::MAX),
    register!("DSISR", 18, 0xffff_ffff),
    register!("PIDR", 48, 0xf_fffc),
];

/// Protection keys.
pub static KEYS: [Register; 2] = [register!("AMR", 29, u64::MAX), register!("UAMOR", 157, u64::MAX)];

/// Event-based branches.
pub static EBB: [Register; 2] = [register!("EBBHR", 804, !3), register!("EBBRR", 805, !3)];

/// The performance monitor, with its counters frozen.
pub static PMU: [Register; 7] = [
    // FC: nothing counts.
    register!("PMC1", 771, 0x7fff_ffff),
    register!("PMC2", 772, 0x7fff_ffff),
    register!("PMC3", 773, 0x7fff_ffff),
    register!("PMC4", 774, 0x7fff_ffff),
    register!("MMCR1", 798, 0xffff_ffff),
    register!("SIAR", 780, u64::MAX),
    register!("SDAR", 781, u64::MAX),
];

/// MMCR0.FC: counters are frozen.
const FROZEN: u64 = 0x8000_0000;

/// Gives the registers of a group values of their own.
pub fn fill(group: &[Register], seed: u64) {
    mtspr!(795, FROZEN);
    for (index, register) in group.iter().enumerate() {
        (register.write)(word(seed, 200 + index as u64) & register.mask);
    }
}

/// Returns the name of the first register of a group that does not hold the value of a seed.
pub fn first_wrong(group: &'static [Register], seed: u64) -> Option<&'static str> {
    let wrong = |(index, register): &(usize, &Register)| {
        (register.read)() & register.mask != word(seed, 200 + *index as u64) & register.mask
    };
    group.iter().enumerate().find(wrong).map(|(_, register)| register.name)
}

/// Says whether they hold the values of a seed.
pub fn holds(group: &'static [Register], seed: u64) -> bool {
    // What a reset leaves in them is not defined: only what others have put there must not be seen.
    seed == 0 || first_wrong(group, seed).is_none()
}
