// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A read-only image, and what was written over it: a copy of each cluster at its first write.
//!
//! What survives a restart is the map, the owners and the store; they are the caller's. Each change is committed by one store to the map,
//! behind everything that it refers to, so a restart at any instant finds either the old cluster or the new one. Which places of the store
//! are free is found anew, a few at a time and only when one is needed: those that the map does not lead to. So a disk of any size is taken
//! up at once.

use core::sync::atomic::{AtomicU32, Ordering};

use turnstile_virtio::device::Span;
use turnstile_virtio::memory::Memory;

use crate::disk::{Disk, DiskFor, Failure, SECTOR, inside};
use crate::ram::{Image, Store, fill, from_memory, to_memory};

#[cfg(test)]
mod tests;

/// How many bytes are copied at their first write.
pub const CLUSTER: u64 = 4096;

/// The cluster is that of the image, or zero behind its end.
const BELOW: u32 = 0;
/// The cluster is zero.
const ZERO: u32 = 1;
/// The cluster is in the store, in the place with this number more.
const PLACED: u32 = 2;
/// In an owner: the place is free, and the other bits are the next free one.
const FREE: u32 = 1 << 31;
/// No place.
const NONE: u32 = FREE - 1;
/// How many places one call looks at in search of free ones, until others have a turn.
const LOOK: u32 = 4096;

/// What an overlay knows of its clusters, in memory that outlives it. Filled with zeroes, it is a new one.
#[derive(Clone, Copy, Debug)]
pub struct Kept<'a> {
    /// For each cluster of the disk: where it is.
    pub map: &'a [AtomicU32],
    /// For each cluster of the store: which cluster of the disk it holds, plus one; zero or the next free one while it is free.
    pub owners: &'a [AtomicU32],
}

/// A disk over an image.
#[derive(Debug)]
pub struct Overlay<'a, I, S> {
    image: I,
    store: S,
    kept: Kept<'a>,
    sectors: u64,
    /// The first free place of the store, of those that were looked at.
    free: u32,
    /// How many places were looked at: those before this one.
    seen: u32,
    /// How many more this call looks at.
    looks: u32,
    /// A write has found no room.
    lacked: bool,
}

impl<'a, I: Image, S: Store> Overlay<'a, I, S> {
    /// Makes a disk without a sector.
    pub const fn empty(image: I, store: S) -> Self {
        let kept = Kept { map: &[], owners: &[] };
        Self { image, store, kept, sectors: 0, free: NONE, seen: 0, looks: 0, lacked: false }
    }

    /// Makes a disk of `sectors` over an image, or takes up one that was there before. What is behind the end of the image is zero. `None`
    /// if the map has no room for so many, or the store has less room than `owners` says.
    pub fn new(image: I, store: S, kept: Kept<'a>, sectors: u64) -> Option<Self> {
        let clusters = sectors.div_ceil(CLUSTER / SECTOR);
        let places = kept.owners.len() as u64;
        let fits = kept.map.len() as u64 >= clusters
            && clusters < u64::from(NONE)
            && places <= u64::from(NONE - PLACED)
            && store.length() / CLUSTER >= places;
        fits.then(|| Self { kept, sectors, ..Self::empty(image, store) })
    }

    /// How many clusters can still be written for the first time. It looks at all places.
    pub fn room(&self) -> u32 {
        (0..self.places()).filter(|&place| !self.is_used(place)).count() as u32
    }

    /// Whether a write has found no room.
    pub const fn has_lacked(&self) -> bool {
        self.lacked
    }

    /// How many clusters the store holds.
    const fn places(&self) -> u32 {
        self.kept.owners.len() as u32
    }

    /// Which cluster of the disk a place says that it holds.
    #[inline] // On the path of every request.
    fn owner(&self, place: u32) -> Option<u32> {
        let owner = self.kept.owners.get(place as usize)?.load(Ordering::Acquire);
        owner.checked_sub(1).filter(|_| owner & FREE == 0)
    }

    /// Whether a place holds a cluster: the map leads to it from the cluster that it says.
    fn is_used(&self, place: u32) -> bool {
        let map = self.owner(place).and_then(|cluster| self.kept.map.get(cluster as usize));
        map.is_some_and(|entry| entry.load(Ordering::Acquire) == place + PLACED)
    }

    /// A place is free. Those that were not looked at yet are found later.
    fn give_back(&mut self, place: u32) {
        if let Some(owner) = self.kept.owners.get(place as usize).filter(|_| place < self.seen) {
            // No cluster has a map entry for it.
            set(owner, FREE | self.free);
            self.free = place;
        }
    }

    /// Where the cluster at a position is. An entry that leads to a place of another cluster, or to none, cannot come from here: whoever keeps
    /// the memory has damaged it. The cluster is that of the image then, so no two share a place.
    #[inline] // On the path of every request.
    fn mapped(&self, at: u64) -> Result<u32, Failure> {
        let entry = self.entry(at)?.load(Ordering::Acquire);
        let is_sound = |place| self.owner(place).is_some_and(|owner| u64::from(owner) == at / CLUSTER);
        Ok(if entry.checked_sub(PLACED).is_none_or(is_sound) { entry } else { BELOW })
    }

    /// The map's entry of the cluster at a position.
    #[inline] // On the path of every request.
    fn entry(&self, at: u64) -> Result<&'a AtomicU32, Failure> {
        self.kept.map.get((at / CLUSTER) as usize).ok_or(Failure::Io)
    }

    /// Where a cluster of the store begins.
    const fn place(entry: u32) -> u64 {
        (entry - PLACED) as u64 * CLUSTER
    }

    /// Says whether a span that begins in this cluster and ends there has all of it, as far as the disk goes.
    const fn is_whole(&self, at: u64, length: u64) -> bool {
        at.is_multiple_of(CLUSTER) && (length == CLUSTER || at + length == self.sectors * SECTOR)
    }

    /// How many bytes of a span lie in the first cluster that it touches.
    fn in_cluster(at: u64, length: u64) -> u64 {
        (CLUSTER - at % CLUSTER).min(length)
    }

    /// Finds a free place.
    fn find(&mut self) -> Result<u32, Failure> {
        while self.free == NONE {
            if self.seen >= self.places() {
                self.lacked = true;
                return Err(Failure::Io);
            }
            self.looks = self.looks.checked_sub(1).ok_or(Failure::Busy)?;
            let place = self.seen;
            self.seen += 1;
            if !self.is_used(place) {
                self.give_back(place);
            }
        }
        Ok(self.free)
    }

    /// Finds a place for a cluster, filled with what that holds now unless all of it is to be written.
    fn claim(&mut self, at: u64, whole: bool) -> Result<u32, Failure> {
        let place = self.find()?;
        if !whole {
            self.fill_place(place, at - at % CLUSTER)?;
        }
        Ok(place)
    }

    /// From here on the cluster is what its new place holds.
    fn commit(&mut self, at: u64, place: u32) -> Result<(), Failure> {
        let (entry, owner) = (self.entry(at)?, self.kept.owners.get(place as usize).ok_or(Failure::Io)?);
        self.free = owner.load(Ordering::Acquire) & !FREE;
        set(owner, (at / CLUSTER) as u32 + 1);
        // Behind the bytes and the owner.
        set(entry, place + PLACED);
        Ok(())
    }

    /// Copies a cluster of the image into a place.
    fn fill_place(&mut self, place: u32, cluster: u64) -> Result<(), Failure> {
        let (mut done, begin) = (0, u64::from(place) * CLUSTER);
        let below = match self.mapped(cluster)? {
            BELOW => self.image.length().saturating_sub(cluster).min(CLUSTER),
            _ => 0,
        };
        while done < below {
            let from = self.image.piece(cluster + done, below - done).ok_or(Failure::Io)?;
            let to = self.store.piece_mut(begin + done, from.len() as u64).ok_or(Failure::Io)?;
            let length = to.len().min(from.len());
            let (to, from) = (to.get_mut(..length), from.get(..length));
            to.unwrap_or_default().copy_from_slice(from.unwrap_or_default());
            done += length as u64;
        }
        fill(&mut self.store, begin + done, CLUSTER - done)
    }

    /// Writes within one cluster.
    fn write_cluster<M: Memory>(&mut self, at: u64, memory: &M, from: Span) -> Result<(), Failure> {
        let mapped = self.mapped(at)?;
        if mapped >= PLACED {
            return from_memory(&mut self.store, Self::place(mapped) + at % CLUSTER, memory, from);
        }
        let place = self.claim(at, u64::from(from.length) == CLUSTER)?;
        from_memory(&mut self.store, u64::from(place) * CLUSTER + at % CLUSTER, memory, from)?;
        self.commit(at, place)
    }

    /// A whole cluster is zero from now on, and its place is free.
    fn drop_cluster(&mut self, at: u64) -> Result<(), Failure> {
        let old = self.mapped(at)?;
        // Before its place is free.
        set(self.entry(at)?, ZERO);
        if let Some(place) = old.checked_sub(PLACED) {
            self.give_back(place);
        }
        Ok(())
    }
}

/// Changes a word that outlives this disk, behind all that was written before. Whoever serves the disk may be killed before each of them.
#[inline(always)] // A store.
fn set(word: &AtomicU32, value: u32) {
    #[cfg(test)]
    tests::step();
    word.store(value, Ordering::Release);
}

impl<I: Image, S: Store> Disk for Overlay<'_, I, S> {
    fn sectors(&self) -> u64 {
        self.sectors
    }

    /// There is nothing to do: RAM does not survive a loss of power.
    fn flush(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// Whole clusters are given up; they read as zero.
    fn discard(&mut self, at: u64, length: u64) -> Result<(), Failure> {
        inside(at, length, self.sectors * SECTOR)?;
        let (mut at, end) = (at.next_multiple_of(CLUSTER), at + length);
        while at < end {
            let length = Self::in_cluster(at, end - at);
            if self.is_whole(at, length) {
                self.drop_cluster(at)?;
            }
            at += length;
        }
        Ok(())
    }

    /// Clusters that have a place keep it unless they may be given up.
    fn zero(&mut self, mut at: u64, length: u64, may_discard: bool) -> Result<(), Failure> {
        inside(at, length, self.sectors * SECTOR)?;
        self.looks = LOOK;
        let end = at + length;
        while at < end {
            let length = Self::in_cluster(at, end - at);
            let mapped = self.mapped(at)?;
            match mapped {
                ZERO => {}
                // Behind the image it is zero already.
                BELOW if at - at % CLUSTER >= self.image.length() => {}
                _ if self.is_whole(at, length) && (may_discard || mapped == BELOW) => {
                    self.drop_cluster(at)?
                }
                BELOW => {
                    let place = self.claim(at, false)?;
                    fill(&mut self.store, u64::from(place) * CLUSTER + at % CLUSTER, length)?;
                    self.commit(at, place)?;
                }
                placed => fill(&mut self.store, Self::place(placed) + at % CLUSTER, length)?,
            }
            at += length;
        }
        Ok(())
    }
}

impl<M: Memory, I: Image, S: Store> DiskFor<M> for Overlay<'_, I, S> {
    #[inline] // On the path of every request.
    fn read(&mut self, mut at: u64, memory: &M, mut to: Span) -> Result<(), Failure> {
        inside(at, to.length.into(), self.sectors * SECTOR)?;
        while to.length != 0 {
            let mut length = Self::in_cluster(at, to.length.into());
            match self.mapped(at)? {
                BELOW if at < self.image.length() => {
                    length = length.min(self.image.length() - at);
                    to_memory(&self.image, at, memory, Span { length: length as u32, ..to })?;
                }
                BELOW | ZERO => {
                    const ZEROES: [u8; CLUSTER as usize] = [0; CLUSTER as usize];
                    memory.write(to.address, ZEROES.get(..length as usize).unwrap_or_default())?;
                }
                placed => {
                    let from = Self::place(placed) + at % CLUSTER;
                    to_memory(&self.store, from, memory, Span { length: length as u32, ..to })?;
                }
            }
            at += length;
            to = Span { address: to.address.wrapping_add(length), length: to.length - length as u32 };
        }
        Ok(())
    }

    #[inline] // On the path of every request.
    fn write(&mut self, mut at: u64, memory: &M, mut from: Span) -> Result<(), Failure> {
        inside(at, from.length.into(), self.sectors * SECTOR)?;
        self.looks = LOOK;
        while from.length != 0 {
            let length = Self::in_cluster(at, from.length.into());
            self.write_cluster(at, memory, Span { length: length as u32, ..from })?;
            at += length;
            from = Span { address: from.address.wrapping_add(length), length: from.length - length as u32 };
        }
        Ok(())
    }
}
