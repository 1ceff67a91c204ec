// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The leaves of one vCPU in the form that an exit looks up.

use alloc::boxed::Box;
use alloc::vec::Vec;

/// The first of each range of leaves.
pub(crate) const RANGES: [u32; 3] = [0, 0x4000_0000, 0x8000_0000];

/// EAX, EBX, ECX, EDX of a leaf.
pub(crate) type Registers = [u32; 4];

/// Which part of an answer follows the state of the vCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follows {
    /// None.
    Nothing,
    /// Leaf 1: CR4.OSXSAVE in ECX bit 27; EDX bit 9 is clear while the local APIC is disabled.
    Features,
    /// Leaf 7, subleaf 0: CR4.PKE in ECX bit 4.
    Ospke,
    /// Leaf d, subleaf 0: the size of the area for XCR0 in EBX ([`CpuidTable::xsave_size`]).
    XsaveSize,
    /// Leaf d, subleaf 1: the size of the compacted area for XCR0 in EBX ([`CpuidTable::compacted_size`]).
    CompactedSize,
}

/// An answer, with the state-dependent part as it is after a reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// The place of one in a table is a shift.
#[repr(align(32))]
pub struct Answer {
    /// EAX, EBX, ECX, EDX.
    pub registers: [u32; 4],
    /// What of it is the caller's to fill in.
    pub follows: Follows,
}

impl Answer {
    pub(crate) const NONE: Self = Self { registers: [0; 4], follows: Follows::Nothing };

    pub(crate) const fn constant(registers: Registers) -> Self {
        Self { registers, follows: Follows::Nothing }
    }
}

/// A leaf: its answers for the subleaves from 0 on. A leaf that does not look at ECX has one, for all.
#[derive(Clone, Debug)]
#[repr(align(32))] // As an answer.
pub(crate) struct Leaf {
    answers: Box<[Answer]>,
    /// The bits of ECX that count: all or none.
    subleaf: u32,
}

/// A range of leaves.
#[derive(Clone, Debug, Default)]
#[repr(align(32))] // As an answer.
struct Range(Vec<Leaf>);

/// The CPUID leaves of one vCPU.
#[derive(Clone, Debug)]
pub struct CpuidTable {
    /// By the two highest bits of their numbers; of the last there are none.
    leaves: [Range; 4],
    /// Size, offset in the standard form, and whether the compacted form aligns it to 64 bytes, of each XSAVE component.
    components: [(u32, u32, bool); 64],
}

/// The bytes of the legacy region and the header of an XSAVE area (AMD APM vol. 2, 11.5.5).
const XSAVE_BASE: u32 = 576;

impl CpuidTable {
    pub(crate) fn new() -> Self {
        Self { leaves: Default::default(), components: [(0, 0, false); 64] }
    }

    /// Adds the next leaf of range `range`.
    pub(crate) fn push(&mut self, range: usize, answers: &[Answer], ignores_ecx: bool) {
        let subleaf = if ignores_ecx { 0 } else { !0 };
        self.leaves[range].0.push(Leaf { answers: answers.into(), subleaf });
    }

    pub(crate) fn set_component(&mut self, number: usize, size: u32, offset: u32, aligned: bool) {
        self.components[number] = (size, offset, aligned);
    }

    /// Answers CPUID. A leaf that is not there is answered with zeros, as AMD's processors do.
    #[inline] // On the light exit of CPUID.
    pub fn get(&self, leaf: u32, subleaf: u32) -> Answer {
        self.find(leaf, subleaf).copied().unwrap_or(Answer::NONE)
    }

    /// [`CpuidTable::get`], where the answer is; `None` if all of it is zeros.
    #[inline(always)] // Most of the light exit of CPUID.
    pub fn find(&self, leaf: u32, subleaf: u32) -> Option<&Answer> {
        // The ranges differ in the two highest bits: 0, 1 (0x4000_0000) and 2 (0x8000_0000).
        let range = (leaf >> 30) as usize;
        let leaf = self.leaves.get(range)?.0.get((leaf & 0x3fff_ffff) as usize)?;
        leaf.answers.get((subleaf & leaf.subleaf) as usize)
    }

    /// Returns the highest leaf of a range by its first leaf.
    #[must_use]
    pub fn highest(&self, first: u32) -> Option<u32> {
        let range = RANGES.iter().position(|&start| start == first)?;
        Some(first + self.leaves[range].0.len().checked_sub(1)? as u32)
    }

    /// Returns the bytes of an XSAVE area in the standard form with these components (CPUID leaf d, subleaf 0, EBX).
    #[must_use]
    pub fn xsave_size(&self, components: u64) -> u32 {
        let ends = self.present(components).map(|(size, offset, _)| offset + size);
        ends.fold(XSAVE_BASE, u32::max)
    }

    /// Returns the bytes of an XSAVE area in the compacted form with these components (subleaf 1, EBX).
    #[must_use]
    pub fn compacted_size(&self, components: u64) -> u32 {
        self.present(components).fold(XSAVE_BASE, |end, (size, _, aligned)| {
            size + if aligned { end.next_multiple_of(64) } else { end }
        })
    }

    /// The components beyond x87 and SSE, which are in the legacy region.
    fn present(&self, components: u64) -> impl Iterator<Item = (u32, u32, bool)> + '_ {
        let numbered = self.components.iter().copied().enumerate().skip(2);
        numbered.filter(move |(number, _)| components >> number & 1 != 0).map(|(_, component)| component)
    }
}
