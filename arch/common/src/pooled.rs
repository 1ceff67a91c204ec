// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The memory of a VM whose blocks come from a pool: where they are, which of them have to stay, and how they go back.
//!
//! The VM's tables alone say where a block is, and which address the hypervisor reaches it by. Who keeps such an address beyond an exit pins the
//! block first ([`Pooled::pin`]): it stays as long as the VM has its memory.

use alloc::sync::Arc;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use turnstile_paging::{BLOCK, Blocks, Format};
use turnstile_pool::Pool;

use crate::demand::{self, Clear, Touch, block};

/// Blocks that are given back at once: TLBs are told once for all of them.
const BATCH: u64 = 64;

/// Why there is no address of a VM's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The pool has no block for it now.
    Dry,
    /// It is no memory of a pool, or its blocks are not one behind the other.
    Foreign,
}

/// The part of a VM's memory that comes from a pool.
#[derive(Clone, Debug)]
pub struct Pooled<F> {
    blocks: Blocks<F>,
    pool: &'static Pool,
    /// A bit for each block of guest addresses that stays.
    pinned: Arc<[AtomicU64]>,
}

/// The parts of `size` bytes from `address` on that are in one block each: addresses and sizes.
pub fn parts(address: u64, size: u64) -> impl Iterator<Item = (u64, u64)> {
    let end = address.saturating_add(size);
    let mut next = address;
    core::iter::from_fn(move || {
        let start = next;
        next = block(start).saturating_add(BLOCK).min(end);
        (start < next).then(|| (start, next - start))
    })
}

impl<F: Format> Pooled<F> {
    /// Makes it of the tables that are prepared for it, below the guest address `end`.
    pub fn new(blocks: Blocks<F>, pool: &'static Pool, end: u64) -> Self {
        let words = end.div_ceil(BLOCK).div_ceil(u64::BITS.into());
        Self { blocks, pool, pinned: (0..words).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Clears and maps the block that a vCPU has touched, or some of it if its CPU `is_wanted` elsewhere meanwhile.
    ///
    /// # Safety
    /// As for [`demand::touch_pooled`]: of tables and pool.
    pub unsafe fn touch<C: Clear>(
        &self,
        address: u64,
        attributes: F::Attributes,
        is_wanted: impl Fn() -> bool,
    ) -> Touch {
        // SAFETY: the caller's promise.
        unsafe { demand::touch_pooled::<F, C>(&self.blocks, address, self.pool, attributes, is_wanted) }
    }

    /// Returns the physical address of `size` bytes, which are cleared and mapped before if they are not yet.
    ///
    /// # Errors
    /// When the pool has no block for them, or they have no one address.
    ///
    /// # Safety
    /// As for [`Pooled::touch`].
    pub unsafe fn host<C: Clear>(
        &self,
        address: u64,
        size: u64,
        attributes: F::Attributes,
    ) -> Result<u64, Missing> {
        // SAFETY: the caller's promise.
        let settle = |address| unsafe { self.settle::<C>(address, attributes) };
        let first = settle(address)? + (address - block(address));
        for (part, _) in parts(address, size).skip(1) {
            if settle(part)? != first + (part - address) {
                return Err(Missing::Foreign);
            }
        }
        Ok(first)
    }

    /// Returns where the block that contains `address` is, which is mapped by then.
    unsafe fn settle<C: Clear>(&self, address: u64, attributes: F::Attributes) -> Result<u64, Missing> {
        loop {
            // SAFETY: the caller's promise.
            if let Some(host) = unsafe { demand::mapped::<F, C>(&self.blocks, address, attributes) } {
                return Ok(host);
            }
            // Who has taken the entry waits for nobody, and gives it back.
            // SAFETY: as above.
            match unsafe { self.touch::<C>(address, attributes, || false) } {
                Touch::Mapped | Touch::Again => {}
                Touch::Dry => return Err(Missing::Dry),
                Touch::Foreign => return Err(Missing::Foreign),
            }
        }
    }

    /// Keeps the blocks of `size` bytes from being given back, because their physical addresses are kept beyond an exit.
    pub fn pin(&self, address: u64, size: u64) {
        for (part, _) in parts(address, size) {
            if let Some((word, bit)) = self.pin_of(part) {
                // Relaxed: who gives blocks back acquires what the exits of all vCPUs have done.
                word.fetch_or(bit, Ordering::Relaxed);
            }
        }
    }

    fn pin_of(&self, address: u64) -> Option<(&AtomicU64, u64)> {
        let number = address / BLOCK;
        let word = usize::try_from(number / u64::from(u64::BITS)).ok()?;
        Some((self.pinned.get(word)?, 1 << (number % u64::from(u64::BITS))))
    }

    /// Says whether a block stays. One that is beyond the memory has nothing to go.
    fn is_pinned(&self, address: u64) -> bool {
        self.pin_of(address).is_none_or(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }

    /// Gives whole blocks back to the pool, but those that are pinned, or not mapped. `invalidate` makes all CPUs forget the translations of the
    /// VM, or not use them any more; nobody has these blocks before that. Returns how many have gone.
    ///
    /// # Safety
    /// As for [`Pooled::touch`]. No vCPU of the VM is in its guest or in an exit, nor is a service that reaches its memory, and none has
    /// translations of these blocks.
    pub unsafe fn give_back<C: Clear>(
        &self,
        blocks: Range<u64>,
        attributes: F::Attributes,
        invalidate: impl Fn(),
    ) -> u64 {
        let (mut next, mut given) = (blocks.start.next_multiple_of(BLOCK), 0);
        while next < block(blocks.end) {
            let count = ((block(blocks.end) - next) / BLOCK).min(BATCH);
            let addresses = (0..count).map(|index| (index, next + index * BLOCK));
            let mut taken = 0_u64;
            for (index, address) in addresses.clone().filter(|(_, address)| !self.is_pinned(*address)) {
                // SAFETY: the caller's promise.
                let host = unsafe { demand::take_away::<F, C>(&self.blocks, address, attributes) };
                taken |= u64::from(host.is_some()) << index;
            }
            if taken != 0 {
                // Before anybody else gets one of them.
                invalidate();
            }
            for (_, address) in addresses.filter(|(index, _)| taken >> index & 1 != 0) {
                // SAFETY: as above.
                given += u64::from(unsafe { self.give::<C>(address, attributes) });
            }
            next += count * BLOCK;
        }
        given
    }

    /// Gives the block that contains `address` to the pool, if there is one. Nobody reaches it any more.
    unsafe fn give<C: Clear>(&self, address: u64, attributes: F::Attributes) -> bool {
        // SAFETY: the caller's promise.
        let Some(host) = (unsafe { demand::place::<F, C>(&self.blocks, address, attributes) }) else {
            return false;
        };
        // Before the pool has it: a later touch takes another one, which may be the same.
        // SAFETY: as above.
        unsafe { demand::vacate::<F, C>(&self.blocks, address, attributes) };
        self.pool.give(host)
    }

    /// Gives all blocks of a range of whole ones to the pool, mapped or not: the VM's memory is over. Those that are pinned are lost if
    /// `keeps_pinned`.
    ///
    /// # Safety
    /// As for [`Pooled::touch`]. Nobody reaches the memory any more by any translation, or by an address that was kept, but those of pinned
    /// blocks if `keeps_pinned`.
    pub unsafe fn release<C: Clear>(
        &self,
        blocks: Range<u64>,
        attributes: F::Attributes,
        keeps_pinned: bool,
    ) {
        for address in blocks.step_by(BLOCK as usize).filter(|at| !(keeps_pinned && self.is_pinned(*at))) {
            // SAFETY: the caller's promise.
            unsafe { self.give::<C>(address, attributes) };
        }
    }

    /// Returns how many bytes are in blocks that are pinned.
    pub fn pinned_bytes(&self) -> u64 {
        let bits = |word: &AtomicU64| u64::from(word.load(Ordering::Relaxed).count_ones());
        self.pinned.iter().map(bits).sum::<u64>() * BLOCK
    }

    /// Says whether it is the same VM's memory of the same life.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.pinned, &other.pinned)
    }
}
