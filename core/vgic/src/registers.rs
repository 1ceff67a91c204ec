// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The register map of the distributor and of the redistributors' SGI frames (Arm IHI 0069, sections
//! 12.8, 12.10 and 12.11), and of a GICv2's distributor (Arm IHI 0048, section 4.3): offsets and values
//! that need no state.
//!
//! All frames put the same kind of register at the same offset, so one table serves all: the frame's
//! first 4 KiB in steps of 128 bytes, which is the size of the smallest bank.

/// Names a bank of registers, each with a field for every INTID, or the control registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Bank {
    /// Reserved, or of a feature that is not there: reads as zero, ignores writes.
    Reserved,
    Control,
    Group,
    SetEnable,
    ClearEnable,
    SetPending,
    ClearPending,
    SetActive,
    ClearActive,
    Priority,
    /// `GICD_ITARGETSR<n>`, GICv2 only.
    Targets,
    Config,
    /// `GICD_SGIR`, `GICD_CPENDSGIR<n>` and `GICD_SPENDSGIR<n>`, GICv2 only.
    Sgi,
}

/// The offset ranges of the banks, end exclusive. What is missing is [`Bank::Reserved`]: `IGRPMODR` and
/// `NSACR` (one Security state). With a GICv3 `ITARGETSR` and `SGIR` are reserved too (affinity routing is
/// always on).
const RANGES: [(u32, u32, Bank); 12] = [
    (0x000, 0x080, Bank::Control),
    (0x080, 0x100, Bank::Group),
    (0x100, 0x180, Bank::SetEnable),
    (0x180, 0x200, Bank::ClearEnable),
    (0x200, 0x280, Bank::SetPending),
    (0x280, 0x300, Bank::ClearPending),
    (0x300, 0x380, Bank::SetActive),
    (0x380, 0x400, Bank::ClearActive),
    (0x400, 0x800, Bank::Priority),
    (0x800, 0xc00, Bank::Targets),
    (0xc00, 0xd00, Bank::Config),
    (0xf00, 0xf80, Bank::Sgi),
];

const GRANULE: u32 = 0x80;

/// The table made of [`RANGES`] at compile time: a register's bank is one load.
static BANKS: [Bank; 32] = {
    let mut banks = [Bank::Reserved; 32];
    let mut range = 0;
    while range < RANGES.len() {
        let (mut at, end, bank) = RANGES[range];
        while at < end {
            banks[(at / GRANULE) as usize] = bank;
            at += GRANULE;
        }
        range += 1;
    }
    banks
};

/// Returns the bank at an offset of the frame.
#[inline] // Hot: the first step of each register access.
pub(crate) fn bank(offset: u32) -> Bank {
    if offset < 0x1000 { BANKS[(offset / GRANULE) as usize & 31] } else { Bank::Reserved }
}

/// Says whether an access is one aligned word: the only size of nearly all registers.
#[inline] // Hot: the first step of each register access.
pub(crate) const fn is_word(offset: u32, size: u8) -> bool {
    size == 4 && offset & 3 == 0
}

/// Returns the number of the 32-INTID block of a register in a bank with one bit per INTID.
#[inline] // Two instructions.
pub(crate) const fn block(offset: u32) -> u32 {
    (offset & (GRANULE - 1)) / 4
}

/// Distributor control registers.
pub(crate) mod gicd {
    pub(crate) const CTLR: u32 = 0x0000;
    pub(crate) const TYPER: u32 = 0x0004;
    pub(crate) const IIDR: u32 = 0x0008;
    pub(crate) const SETSPI_NSR: u32 = 0x0040;
    pub(crate) const CLRSPI_NSR: u32 = 0x0048;
    pub(crate) const PRIORITY: u32 = 0x0400;
    pub(crate) const TARGETS: u32 = 0x0800;
    pub(crate) const CONFIG: u32 = 0x0c00;
    pub(crate) const SGIR: u32 = 0x0f00;
    pub(crate) const CLEAR_SGI: u32 = 0x0f10;
    pub(crate) const SET_SGI: u32 = 0x0f20;
    pub(crate) const SET_SGI_END: u32 = 0x0f30;
    pub(crate) const ROUTER: u32 = 0x6000;
    pub(crate) const ROUTER_END: u32 = 0x8000;

    /// `GICD_CTLR.EnableGrp0` and `EnableGrp1`: all that can be written.
    pub(crate) const CTLR_GROUPS: u32 = 0b11;
    /// `GICD_CTLR.ARE` and `DS` of a GICv3, fixed to one.
    pub(crate) const CTLR_FIXED: u32 = 1 << 4 | 1 << 6;
    /// `GICD_CTLR.RWP` of a GICv3: a write is in progress.
    pub(crate) const CTLR_RWP: u32 = 1 << 31;
}

/// Redistributor registers: the RD frame, then the SGI frame 64 KiB above it.
pub(crate) mod gicr {
    pub(crate) const IIDR: u32 = 0x0004;
    pub(crate) const TYPER: u32 = 0x0008;
    pub(crate) const WAKER: u32 = 0x0014;
    pub(crate) const SGI_FRAME: u32 = 0x1_0000;

    /// `GICR_WAKER.ProcessorSleep`.
    pub(crate) const PROCESSOR_SLEEP: u32 = 1 << 1;
    /// `GICR_WAKER.ChildrenAsleep`.
    pub(crate) const CHILDREN_ASLEEP: u32 = 1 << 2;
}

/// `GICD_IIDR` and `GICR_IIDR`: ProductID 'T', revision 0, JEP106 code 0 (no implementer's).
pub(crate) const IIDR: u32 = 0x5400_0000;

/// The offset and the value of `GICD_PIDR2` and `GICR_PIDR2`: in the last 48 bytes of the first 64 KiB frame,
/// ArchRev = 3.
pub(crate) const GICV3_PIDR2: (u32, u32) = (0xffe8, 0x30);
/// The same of `ICPIDR2`: in the last 48 bytes of a GICv2's frame, which has 4 KiB; ArchRev = 2.
pub(crate) const GICV2_PIDR2: (u32, u32) = (0x0fe8, 0x20);

/// Spreads the lower sixteen bits to the odd bits of a word, as `GICD_ICFGR<n>` has them.
pub(crate) const fn config_from_bits(bits: u32) -> u32 {
    let mut value = 0;
    let mut n = 0;
    while n < 16 {
        value |= (bits >> n & 1) << (2 * n + 1);
        n += 1;
    }
    value
}

/// Collects the odd bits of a word: the inverse of [`config_from_bits`].
pub(crate) const fn config_to_bits(value: u32) -> u32 {
    let mut bits = 0;
    let mut n = 0;
    while n < 16 {
        bits |= (value >> (2 * n + 1) & 1) << n;
        n += 1;
    }
    bits
}

/// Returns the positions of the set bits.
pub(crate) fn set_bits(mut bits: u32) -> impl Iterator<Item = u32> {
    core::iter::from_fn(move || {
        let bit = (bits != 0).then(|| bits.trailing_zeros());
        bits &= bits.wrapping_sub(1);
        bit
    })
}
