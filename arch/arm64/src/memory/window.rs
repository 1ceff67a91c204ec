// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a CPU reaches memory of guests, which EL2 does not map: a window of its own, as large as a block, in which no other CPU
//! looks. To open it takes no lock.

use turnstile_arch_common::demand::{Clear, block};
#[cfg(target_os = "none")]
use turnstile_paging::{BLOCK, Blocks, PhysAddr, Slot, Stage1Attributes, Stage1El2};

use super::coherence;

/// Where the windows are in the EL2 address space: one after the other, in a gigabyte. Physical addresses from here on are not used.
pub const BASE: u64 = 0x7f_8000_0000;
/// Their bytes: those of one for each CPU there can be.
pub const SIZE: u64 = 1 << 30;

/// The tables of the windows, whose entries are written in place. Set once, on the boot CPU.
#[cfg(target_os = "none")]
static TABLES: spin::Once<Blocks<Stage1El2>> = spin::Once::new();

/// Uses these tables, which are prepared for [`SIZE`] bytes at [`BASE`] and live for ever.
#[cfg(target_os = "none")]
pub(super) fn set(tables: Blocks<Stage1El2>) {
    TABLES.call_once(|| tables);
}

/// A block of guest memory that this CPU reaches.
pub struct Window {
    /// Where.
    address: u64,
    #[cfg(target_os = "none")]
    slot: Slot,
}

impl Window {
    /// Opens this CPU's window for the block of 2 MiB that contains the physical address `host`.
    ///
    /// # Safety
    /// The block is memory of guests, or free, and nobody else reads or writes it as long as the window is open. This CPU has no other
    /// window open.
    #[cfg(target_os = "none")]
    pub unsafe fn open(host: u64) -> Self {
        let address = BASE + crate::cpu::this().index as u64 % (SIZE / BLOCK) * BLOCK;
        let read = |table: PhysAddr, index| {
            // SAFETY: the walk yields tables of EL2, which it maps one to one, and indexes inside them.
            unsafe { (table.0 as *const u64).add(index).read_volatile() }
        };
        let output = PhysAddr(block(host));
        let slot = TABLES.get().and_then(|tables| tables.slot(address, output, Stage1Attributes::DATA, read));
        let Some(slot) = slot else { unreachable!("`el2::build` prepares the windows") };
        let window = Self { address, slot };
        window.write(slot.entry);
        // The store before the walks of the accesses that follow (Arm ARM D8.17.1). The entry was invalid: no TLB holds it.
        crate::cpu::dsb_ishst();
        crate::cpu::isb();
        window
    }

    /// Opens one on the host, which reaches all memory.
    ///
    /// # Safety
    /// As above.
    #[cfg(not(target_os = "none"))]
    pub unsafe fn open(host: u64) -> Self {
        Self { address: block(host) }
    }

    /// Where the physical address `host` of the block is in it.
    pub fn at(&self, host: u64) -> u64 {
        self.address + (host - block(host))
    }

    /// Closes it.
    pub fn close(self) {
        #[cfg(target_os = "none")]
        {
            self.write(0);
            // The accesses before and the store before the invalidation, the invalidation before what follows (D8.17.5). On all
            // CPUs: another one may have walked here by speculation, and must not find two translations (D8.17.1).
            crate::cpu::dsb_ish();
            crate::cpu::tlbi_vae2is(self.address);
            crate::cpu::dsb_ish();
            crate::cpu::isb();
        }
    }

    #[cfg(target_os = "none")]
    fn write(&self, entry: u64) {
        // SAFETY: the entry of this CPU's window, in a table that EL2 maps one to one; an aligned store is single-copy atomic.
        unsafe { (self.slot.table.0 as *mut u64).add(self.slot.index).write_volatile(entry) };
    }
}

impl Clear for Window {
    unsafe fn open(host: u64) -> Self {
        // SAFETY: the caller's promise; nothing that clears opens a second one.
        unsafe { Window::open(host) }
    }

    fn clear(&mut self, offset: u64, size: u64) {
        let start = self.address + offset;
        super::bulk::zero(start, size);
        // A guest whose caches are off reads past those of this CPU.
        coherence::publish(start, size);
    }

    fn close(self) {
        Window::close(self);
    }
}
