// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A read-only image, and what was written over it: a copy of each cluster at its first write.
//!
//! What survives a restart is the map, the owners and the store; they are the caller's. Each change is committed by one store to the map,
//! behind everything that it refers to, so a restart at any instant finds either the old cluster or the new one. Which places of the store
//! are free is found anew: those that the map does not lead to.

use core::sync::atomic::{AtomicU32, Ordering};

use turnstile_virtio::device::Span;
use turnstile_virtio::memory::Memory;

use crate::disk::{Disk, DiskFor, Failure, SECTOR, inside};
use crate::ram::{Image, Store, fill, from_memory, to_memory};

/// How many bytes are copied at their first write.
pub const CLUSTER: u64 = 4096;

/// The cluster is that of the image, or zero behind its end.
const BELOW: u32 = 0;
/// The cluster is zero.
const ZERO: u32 = 1;
/// The cluster is in the store, in the place with this number more.
const PLACED: u32 = 2;
/// No place.
const NONE: u32 = u32::MAX;

/// What an overlay knows of its clusters, in memory that outlives it. Filled with zeroes, it is a new one.
#[derive(Clone, Copy, Debug)]
pub struct Kept<'a> {
    /// For each cluster of the disk: where it is.
    pub map: &'a [AtomicU32],
    /// For each cluster of the store: which cluster of the disk it holds, plus one; while it is free, the next free one.
    pub owners: &'a [AtomicU32],
}

/// A disk over an image.
#[derive(Debug)]
pub struct Overlay<'a, I, S> {
    image: I,
    store: S,
    kept: Kept<'a>,
    sectors: u64,
    /// The first free place of the store.
    free: u32,
    free_count: u32,
}

impl<'a, I: Image, S: Store> Overlay<'a, I, S> {
    /// Makes a disk of `sectors` over an image, or takes up one that was there before. What is behind the end of the image is zero. `None`
    /// if the map has no room for so many, or the store has less room than `owners` says.
    pub fn new(image: I, store: S, kept: Kept<'a>, sectors: u64) -> Option<Self> {
        let clusters = sectors.div_ceil(CLUSTER / SECTOR);
        let places = u32::try_from(kept.owners.len()).ok().filter(|&places| places < NONE - PLACED)?;
        let fits = kept.map.len() as u64 >= clusters
            && clusters < u64::from(NONE)
            && store.length() / CLUSTER >= u64::from(places);
        if !fits {
            return None;
        }
        let mut new = Self { image, store, kept, sectors, free: NONE, free_count: 0 };
        // Before the list of free places is written to the owners.
        new.forget_strange(places);
        for place in (0..places).rev() {
            if !new.is_used(place) {
                new.give_back(place);
            }
        }
        Some(new)
    }

    /// How many clusters can still be written for the first time.
    pub const fn room(&self) -> u32 {
        self.free_count
    }

    /// Whether a place holds a cluster: the map leads to it from the cluster that it says.
    fn is_used(&self, place: u32) -> bool {
        let owner = self.kept.owners.get(place as usize).map_or(0, |owner| owner.load(Ordering::Acquire));
        let map = owner.checked_sub(1).and_then(|cluster| self.kept.map.get(cluster as usize));
        map.is_some_and(|entry| entry.load(Ordering::Acquire) == place + PLACED)
    }

    /// Entries of the map that lead to no place of theirs cannot come from here: whoever keeps the memory has damaged it. They are those of
    /// the image again, so that no two clusters share a place.
    fn forget_strange(&self, places: u32) {
        for (cluster, entry) in (1u32..).zip(self.kept.map) {
            let Some(place) = entry.load(Ordering::Acquire).checked_sub(PLACED) else { continue };
            let owner = self.kept.owners.get(place as usize).map(|owner| owner.load(Ordering::Acquire));
            if place >= places || owner != Some(cluster) {
                entry.store(BELOW, Ordering::Release);
            }
        }
    }

    /// A place is free.
    fn give_back(&mut self, place: u32) {
        if let Some(owner) = self.kept.owners.get(place as usize) {
            // No cluster has a map entry for it, so whatever stands here leads to none.
            owner.store(self.free, Ordering::Release);
            self.free = place;
            self.free_count += 1;
        }
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

    /// How many bytes of a span lie in the first cluster that it touches.
    fn in_cluster(at: u64, length: u64) -> u64 {
        (CLUSTER - at % CLUSTER).min(length)
    }

    /// Finds a place for a cluster, filled with what that holds now unless all of it is to be written.
    fn claim(&mut self, at: u64, whole: bool) -> Result<u32, Failure> {
        let place = self.free;
        if place == NONE {
            return Err(Failure::Io);
        }
        if !whole {
            self.fill_place(place, at - at % CLUSTER)?;
        }
        Ok(place)
    }

    /// From here on the cluster is what its new place holds.
    fn commit(&mut self, at: u64, place: u32) -> Result<(), Failure> {
        let (entry, owner) = (self.entry(at)?, self.kept.owners.get(place as usize).ok_or(Failure::Io)?);
        self.free = owner.load(Ordering::Acquire);
        self.free_count -= 1;
        owner.store((at / CLUSTER) as u32 + 1, Ordering::Release);
        // Behind the bytes and the owner.
        entry.store(place + PLACED, Ordering::Release);
        Ok(())
    }

    /// Copies a cluster of the image into a place.
    fn fill_place(&mut self, place: u32, cluster: u64) -> Result<(), Failure> {
        let (mut done, begin) = (0, u64::from(place) * CLUSTER);
        let below = match self.entry(cluster)?.load(Ordering::Acquire) {
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
        let entry = self.entry(at)?;
        let mapped = entry.load(Ordering::Acquire);
        if mapped >= PLACED {
            return from_memory(&mut self.store, Self::place(mapped) + at % CLUSTER, memory, from);
        }
        let place = self.claim(at, u64::from(from.length) == CLUSTER)?;
        from_memory(&mut self.store, u64::from(place) * CLUSTER + at % CLUSTER, memory, from)?;
        self.commit(at, place)
    }

    /// A whole cluster is zero from now on, and its place is free.
    fn drop_cluster(&mut self, at: u64) -> Result<(), Failure> {
        let old = self.entry(at)?.swap(ZERO, Ordering::AcqRel);
        if let Some(place) = old.checked_sub(PLACED) {
            self.give_back(place);
        }
        Ok(())
    }
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
        while at + CLUSTER <= end {
            self.drop_cluster(at)?;
            at += CLUSTER;
        }
        Ok(())
    }

    /// Clusters that have a place keep it unless they may be given up.
    fn zero(&mut self, mut at: u64, length: u64, may_discard: bool) -> Result<(), Failure> {
        inside(at, length, self.sectors * SECTOR)?;
        let end = at + length;
        while at < end {
            let length = Self::in_cluster(at, end - at);
            let mapped = self.entry(at)?.load(Ordering::Acquire);
            match mapped {
                ZERO => {}
                _ if length == CLUSTER && (may_discard || mapped == BELOW) => self.drop_cluster(at)?,
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
            match self.entry(at)?.load(Ordering::Acquire) {
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
        while from.length != 0 {
            let length = Self::in_cluster(at, from.length.into());
            self.write_cluster(at, memory, Span { length: length as u32, ..from })?;
            at += length;
            from = Span { address: from.address.wrapping_add(length), length: from.length - length as u32 };
        }
        Ok(())
    }
}
