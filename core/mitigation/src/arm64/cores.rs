// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPUs: their identification registers, and what their makers say of them.
//!
//! Sources: Arm, "Cache Speculation Side-channels" and "Spectre-BHB: Speculative Target Reuse Attacks" with the table of
//! affected cores; other makers' statements as Linux collects them.

/// The identification registers that say how a CPU speculates (Arm ARM D24.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    /// MIDR_EL1.
    pub midr: u64,
    /// ID_AA64PFR0_EL1: CSV2, CSV3.
    pub pfr0: u64,
    /// ID_AA64PFR1_EL1: SSBS.
    pub pfr1: u64,
    /// ID_AA64MMFR1_EL1: ECBHB.
    pub mmfr1: u64,
    /// ID_AA64ISAR2_EL1: CLRBHB.
    pub isar2: u64,
}

const fn field(register: u64, shift: u32) -> u8 {
    (register >> shift & 0xf) as u8
}

impl Cpu {
    /// CSV2: from 1 on, branch targets of one context do not steer another; from 3 on, neither does branch history.
    pub const fn csv2(&self) -> u8 {
        field(self.pfr0, 56)
    }

    /// CSV3: from 1 on, data of a faulting load cannot form an address.
    pub const fn csv3(&self) -> u8 {
        field(self.pfr0, 60)
    }

    /// Whether an exception to a higher level makes the branch history of the lower one harmless.
    pub const fn ecbhb(&self) -> bool {
        field(self.mmfr1, 60) != 0
    }

    /// Whether it has the instruction CLRBHB.
    pub const fn clrbhb(&self) -> bool {
        field(self.isar2, 28) != 0
    }

    /// Whether it has PSTATE.SSBS.
    pub const fn ssbs(&self) -> bool {
        field(self.pfr1, 4) != 0
    }

    /// What its maker says of it.
    pub(crate) fn known(&self) -> Known {
        let maker = (self.midr >> 24 & 0xff) as u8;
        let part = (self.midr >> 4 & 0xfff) as u16;
        let found = CORES.iter().find(|entry| (entry.0, entry.1) == (maker, part));
        found.map_or(Known::Unlisted, |(_, _, known)| *known)
    }
}

/// What is known of a core by its MIDR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// It does not speculate far enough for any of the three.
    Harmless,
    /// Neither targets nor history of a guest steer it; bypass is to be asked for.
    NotSteered,
    /// Targets of a guest do not steer it, though CSV2 may be 0; nothing is said of history.
    TargetsKept,
    /// This many turns of the loop clear its branch history.
    Loop(u16),
    /// Only firmware clears its branch history.
    ByFirmware,
    /// Nothing.
    Unlisted,
}

const ARM: u8 = 0x41;
const BROADCOM: u8 = 0x42;
const HISILICON: u8 = 0x48;
const QUALCOMM: u8 = 0x51;
const AMPERE: u8 = 0xc0;

/// Maker, part number, and what is known.
const CORES: &[(u8, u16, Known)] = &[
    (ARM, 0xd03, Known::Harmless),          // Cortex-A53
    (ARM, 0xd04, Known::Harmless),          // Cortex-A35
    (ARM, 0xd05, Known::Harmless),          // Cortex-A55
    (ARM, 0xd07, Known::Loop(8)),           // Cortex-A57
    (ARM, 0xd08, Known::Loop(8)),           // Cortex-A72
    (ARM, 0xd09, Known::ByFirmware),        // Cortex-A73
    (ARM, 0xd0a, Known::ByFirmware),        // Cortex-A75
    (ARM, 0xd0b, Known::Loop(24)),          // Cortex-A76
    (ARM, 0xd0c, Known::Loop(24)),          // Neoverse N1
    (ARM, 0xd0d, Known::Loop(24)),          // Cortex-A77
    (ARM, 0xd0e, Known::Loop(24)),          // Cortex-A76AE
    (ARM, 0xd40, Known::Loop(32)),          // Neoverse V1
    (ARM, 0xd41, Known::Loop(32)),          // Cortex-A78
    (ARM, 0xd42, Known::Loop(32)),          // Cortex-A78AE
    (ARM, 0xd44, Known::Loop(32)),          // Cortex-X1
    (ARM, 0xd46, Known::NotSteered),        // Cortex-A510
    (ARM, 0xd47, Known::Loop(32)),          // Cortex-A710
    (ARM, 0xd48, Known::Loop(32)),          // Cortex-X2
    (ARM, 0xd49, Known::Loop(32)),          // Neoverse N2
    (ARM, 0xd4b, Known::Loop(32)),          // Cortex-A78C
    (ARM, 0xd4c, Known::Loop(32)),          // Cortex-X1C
    (ARM, 0xd4d, Known::Loop(38)),          // Cortex-A715
    (ARM, 0xd4e, Known::Loop(132)),         // Cortex-X3
    (ARM, 0xd4f, Known::Loop(132)),         // Neoverse V2
    (ARM, 0xd80, Known::NotSteered),        // Cortex-A520
    (ARM, 0xd81, Known::Loop(38)),          // Cortex-A720
    (BROADCOM, 0x100, Known::Harmless),     // Brahma-B53
    (HISILICON, 0xd01, Known::TargetsKept), // TSV110
    (QUALCOMM, 0x800, Known::ByFirmware),   // Kryo 2xx Gold
    (QUALCOMM, 0x801, Known::NotSteered),   // Kryo 2xx Silver
    (QUALCOMM, 0x803, Known::Harmless),     // Kryo 3xx Silver
    (QUALCOMM, 0x804, Known::Loop(24)),     // Kryo 4xx Gold
    (QUALCOMM, 0x805, Known::Harmless),     // Kryo 4xx Silver
    (AMPERE, 0xac3, Known::Loop(11)),       // Ampere1
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_is_listed_once() {
        for (place, (maker, part, _)) in CORES.iter().enumerate() {
            assert!(!CORES[..place].iter().any(|(m, p, _)| (m, p) == (maker, part)), "{maker:#x} {part:#x}");
        }
    }

    #[test]
    fn revisions_and_variants_do_not_matter() {
        for midr in [0x410f_d0c0, 0x413f_d0c1, 0x414f_d0cf] {
            assert_eq!(Cpu { midr, ..Cpu::default() }.known(), Known::Loop(24));
        }
        assert_eq!(Cpu { midr: 0x000f_0510, ..Cpu::default() }.known(), Known::Unlisted);
    }

    #[test]
    fn fields_are_read_from_their_places() {
        let cpu = Cpu { pfr0: 0x2300_0000_0000_0000, pfr1: 2 << 4, mmfr1: 1 << 60, isar2: 1 << 28, midr: 0 };
        assert_eq!((cpu.csv2(), cpu.csv3()), (3, 2));
        assert!(cpu.ecbhb() && cpu.clrbhb() && cpu.ssbs());
        let none =
            Cpu { pfr0: 0x00ff_ffff_ffff_ffff, pfr1: !0xf0, mmfr1: !0 >> 4, isar2: !(0xf << 28), midr: 0 };
        assert_eq!((none.csv2(), none.csv3()), (0, 0));
        assert!(!none.ecbhb() && !none.clrbhb() && !none.ssbs());
    }
}
