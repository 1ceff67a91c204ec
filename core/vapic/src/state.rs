// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the word is that names a frequent state. What is done with it is in `frequent`.

/// One of the frequent states; the low byte is the vector that is offered or in service, zero if none is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frequent {
    pub(crate) now: u16,
    /// What the state is, but for its vector, when there is one.
    pub(crate) busy: u16,
}

impl Frequent {
    /// Any other state.
    pub(crate) const NO: Self = Self { now: 0, busy: 0 };
    /// Set in all frequent states: the APIC accepts interrupts, and nothing of the 8259 gets through.
    pub(crate) const IS: u16 = 1 << 8;
    /// It is an x2APIC.
    pub(crate) const X2APIC: u16 = 1 << 12;
    /// The end of the vector that is there is a write of an x2APIC's EOI register.
    pub(crate) const X2APIC_EOI: u16 = 1 << 9;
    /// The same of an xAPIC's.
    pub(crate) const XAPIC_EOI: u16 = 1 << 10;
    /// The guest has a word for paravirtual EOIs.
    pub(crate) const PV_EOI: u16 = 1 << 11;

    /// The vector that is offered or in service; zero if none is.
    #[inline(always)] // One load.
    pub(crate) const fn vector(&self) -> u8 {
        self.now as u8
    }

    #[inline(always)] // Two instructions.
    pub(crate) const fn set(&mut self, vector: u8) {
        self.now = self.busy | vector as u16;
    }
}
