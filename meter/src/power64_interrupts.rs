// SPDX-License-Identifier: Apache-2.0 OR MIT
//! POWER's interrupts (Power ISA 3.0B, Book III 6.5): each has a vector of its own, and its number is its offset.

/// Where the vectors are when an interrupt leaves the translation on (LPCR.AIL): this much further on.
const RELOCATED: u64 = 0xc000_0000_0000_4000;
/// What of an address is a vector's offset.
pub const OFFSET: u64 = 0xfff;

/// What is known of an interrupt.
pub struct Interrupt {
    /// The offset of its vector.
    pub offset: u16,
    /// Its name in reports.
    pub name: &'static str,
    /// Where it says what was interrupted: HSRR0, not SRR0.
    pub hypervisor: bool,
    /// Whether an instruction causes it.
    pub synchronous: bool,
}

/// An interrupt that tells by SRR0.
const fn plain(offset: u16, name: &'static str, synchronous: bool) -> Interrupt {
    Interrupt { offset, name, hypervisor: false, synchronous }
}

/// An interrupt that tells by HSRR0.
const fn own(offset: u16, name: &'static str, synchronous: bool) -> Interrupt {
    Interrupt { offset, name, hypervisor: true, synchronous }
}

static INTERRUPTS: &[Interrupt] = &[
    plain(0x100, "system-reset", false),
    plain(0x200, "machine-check", false),
    plain(0x300, "data-storage", true),
    plain(0x380, "data-segment", true),
    plain(0x400, "instruction-storage", true),
    plain(0x480, "instruction-segment", true),
    // To the hypervisor, as LPCR.LPES and HVICE are where there are partitions.
    own(0x500, "external", false),
    plain(0x600, "alignment", true),
    plain(0x700, "program", true),
    plain(0x800, "fp-unavailable", true),
    plain(0x900, "decrementer", false),
    own(0x980, "hv-decrementer", false),
    plain(0xa00, "doorbell", false),
    plain(0xc00, "hcall", true),
    plain(0xd00, "trace", true),
    own(0xe00, "hv-data-storage", true),
    own(0xe20, "hv-instruction-storage", true),
    own(0xe40, "hv-emulation", true),
    own(0xe60, "hv-maintenance", false),
    own(0xe80, "hv-doorbell", false),
    own(0xea0, "hv-virtualization", false),
    plain(0xf00, "performance-monitor", false),
    plain(0xf20, "vector-unavailable", true),
    plain(0xf40, "vsx-unavailable", true),
    plain(0xf60, "facility-unavailable", true),
    own(0xf80, "hv-facility-unavailable", true),
];

/// The interrupt whose vector is at this offset.
pub fn interrupt(offset: u64) -> Option<&'static Interrupt> {
    INTERRUPTS.iter().find(|known| u64::from(known.offset) == offset)
}

/// The name of the interrupt with this offset.
pub fn name(offset: u16) -> Option<&'static str> {
    interrupt(offset.into()).map(|known| known.name)
}

/// The offset of the vector at this address, if there is one.
pub fn vector(address: u64) -> Option<u16> {
    let base = address & !OFFSET;
    let known = interrupt(address & OFFSET).filter(|_| base == 0 || base == RELOCATED)?;
    Some(known.offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_are_at_zero_or_behind_the_kernels_start() {
        assert_eq!([vector(0xc00), vector(0xc000_0000_0000_4ea0)], [Some(0xc00), Some(0xea0)]);
        assert_eq!([vector(0xc04), vector(0x3000_0c00), vector(0xc000_0000_0000_0c00)], [None; 3]);
    }

    #[test]
    fn offsets_are_in_order() {
        assert!(INTERRUPTS.windows(2).all(|pair| pair[0].offset < pair[1].offset));
    }
}
