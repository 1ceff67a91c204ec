// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The doorbell in memory that a vCPU has rung last, and the instruction that did: what it takes to ring again.
//!
//! Nothing has to be forgotten when a guest changes its code or its tables: the instruction counts as the same only if its bytes are,
//! and, where the hardware has not fetched them, if each entry of the tables through which they were found is, too
//! ([`crate::state::walks`]).

use crate::cpu::svm::Vmcb;
use crate::memory::user::Code;
use crate::service::{Served, Service};
use crate::state::walks::{Root, Walks};

/// Bytes of a page.
const PAGE: u64 = 4096;
/// The longest instruction that is remembered, in bytes.
const LONGEST: u8 = 8;
/// No CR3: bits are set that have to be zero.
const NOT_WALKED: u64 = u64::MAX;

/// Where the number of a queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    /// What has it.
    pub from: From,
    /// In which bits.
    pub mask: u64,
    /// What is added to it, if it is from the place.
    pub constant: u64,
}

/// What has the number of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// RAX.
    Rax,
    /// A slot that the light tier fills.
    Pushed(usize),
    /// The place in the area, in units of four bytes.
    Place,
}

impl Number {
    /// Of the place; the first one's is `bell`.
    pub const fn place(bell: u64) -> Self {
        Self { from: From::Place, mask: u64::MAX, constant: bell }
    }

    /// Always the same.
    pub const fn always(constant: u64) -> Self {
        Self { from: From::Place, mask: 0, constant }
    }
}

/// A doorbell area, and the store of 64-bit code that has written there.
pub struct Bell {
    code: Code,
    /// The first guest physical address at which the store begins when it rings.
    first: u64,
    /// How many there are: none if nothing is remembered. All of a store is in one page.
    size: u64,
    /// EXITINFO1.
    info: u64,
    rip: u64,
    cr3: u64,
    cr4: u64,
    /// RIP of the next instruction.
    pub next: u64,
    /// Which queue is rung.
    pub number: Number,
    /// Whose it is; one if `size` is not zero.
    service: Option<&'static Service>,
}

impl Bell {
    /// None.
    pub const NONE: Self = Self {
        code: Code::NONE,
        first: 0,
        size: 0,
        info: 0,
        rip: 0,
        cr3: NOT_WALKED,
        cr4: 0,
        next: 0,
        number: Number::place(0),
        service: None,
    };

    /// Returns what leads from an address to its place in the area, to be added.
    pub const fn way(&self) -> u64 {
        self.first.wrapping_neg()
    }

    /// Returns the last guest physical address at which the store begins when it rings.
    pub const fn last(&self) -> u64 {
        self.first + (self.size - 1)
    }

    /// Returns a place in the area, if it is one, and the service that a store there rings if the instruction is the same. HOT.
    #[inline(always)] // Part of three instructions of each access to what is no RAM.
    pub fn at(&self, place: u64) -> Option<(u64, &'static Service)> {
        // SAFETY: no place is below zero, which `size` is unless `new` has made this, with a service.
        (place < self.size).then(|| (place, unsafe { self.service.unwrap_unchecked() }))
    }

    /// Says whether the exit is of the same instruction. HOT.
    #[inline(always)] // Part of the light exit of a doorbell.
    pub fn is_same(&self, vmcb: &Vmcb) -> bool {
        let [info, _] = vmcb.exit_info();
        if info != self.info || vmcb.rip() != self.rip || !vmcb.is_long() {
            return false;
        }
        if let Some(bytes) = vmcb.fetched_whole() {
            return self.code.is(bytes);
        }
        // All of CR4, of which one bit says how many levels there are: the others seldom change.
        let is_root = vmcb.cr3() == self.cr3 && vmcb.cr4() == self.cr4;
        // SAFETY: `new` has it from what `Walks` has noted in this life of the VM, which runs, if there is a root.
        is_root && unsafe { self.code.is_there() }
    }

    /// Returns what it takes to ring the doorbell of a device, at an offset in it, again by an instruction that does, if that is
    /// remembered: a store of 64-bit code, of `sizes` bytes to memory and of its own, which begins with the bytes of `code`.
    pub fn new(
        vmcb: &Vmcb,
        (device, offset): (&Served, u64),
        number: Number,
        [width, length]: [u8; 2],
        code: u128,
        walks: &Walks,
    ) -> Option<Self> {
        let ([info, address], rip) = (vmcb.exit_info(), vmcb.rip());
        let area = device.doorbells;
        // Where a BAR is, the device does not say.
        let first = address.wrapping_sub(offset).wrapping_add(area.first.into());
        if length > LONGEST || address / PAGE != first / PAGE {
            return None;
        }
        // The last store that begins there neither begins behind the device nor reaches into the next page.
        let size = u64::from(area.size)
            .min(device.size.saturating_sub(area.first.into()))
            .min(PAGE + 1 - first % PAGE - u64::from(width));
        let mask = u64::MAX >> (64 - 8 * u32::from(length));
        let mut code = Code { mask, bytes: code as u64 & mask, ..Code::NONE };
        let (mut cr3, cr4) = (NOT_WALKED, vmcb.cr4());
        if vmcb.fetched_whole().is_none() {
            cr3 = vmcb.cr3();
            (code.words, code.at) = walks.way(rip, Root::of(vmcb))?;
        }
        let next = rip.wrapping_add(length.into());
        Some(Self { code, first, size, info, rip, cr3, cr4, next, number, service: Some(device.service) })
    }
}
