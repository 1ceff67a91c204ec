// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The page of a vCPU.
//!
//! ```text
//! offset                size  field
//! 0                        4  magic, "TSXS" as a little-endian word
//! 4                        2  version
//! 6                        2  number of reasons in use; the other records are zero
//! 8                        8  frequency of the counter in Hz
//! 16                     112  zero
//! 128 + 576 reason       576  record of the reason
//!       + 0                8  total of the costs in ticks, modulo 2^64
//!       + 8 z              8  how many costs had z leading zeros, z from 1 to 64; modulo 2^64
//!       + 520             56  zero
//! 13952 + 8 event          8  how many times the event happened, modulo 2^64
//! 14464                 1920  zero
//! ```
//!
//! A cost is a difference of two readings of the counter. The number of its leading zeros is its place in the
//! histogram: 64 for a cost of 0, 63 for 1, 62 for 2 and 3, and so on. A counter that went backwards gives a
//! difference without leading zeros. No bucket counts it; its place is the word of the total, which is then wrong by one tick.
//! So no difference leads out of the record.

use crate::event::Event;
use crate::exits::{BUCKETS, Exits};
use crate::reason::Reason;
use crate::sync::{AtomicU64, Ordering};

/// The first word of a page: "TSXS".
pub const MAGIC: u32 = u32::from_le_bytes(*b"TSXS");
/// The version of the layout.
pub const VERSION: u16 = 2;
/// The bytes of a page.
pub const PAGE_SIZE: usize = 16384;
/// Where the records begin.
pub const RECORDS_OFFSET: usize = 128;
/// How many records there is room for.
pub const RECORDS: usize = 24;
/// Where the counts of events begin.
pub const EVENTS_OFFSET: usize = RECORDS_OFFSET + RECORDS * RECORD_SIZE;
/// How many counts of events there is room for.
pub const EVENTS: usize = 64;

const RECORD_SIZE: usize = 576;
const RECORD_WORDS: usize = 1 + BUCKETS;

/// Returns the offset of a reason's record in a page.
#[must_use]
pub const fn record_offset(reason: Reason) -> usize {
    RECORDS_OFFSET + reason.index() * RECORD_SIZE
}

/// Returns the offset of an event's count in a page.
#[must_use]
pub const fn event_offset(event: Event) -> usize {
    EVENTS_OFFSET + event.index() * 8
}

/// The figures of one reason: word 0 is the total, word z the bucket of the costs with z leading zeros.
#[derive(Debug)]
#[repr(C)]
pub struct Record {
    words: [AtomicU64; RECORD_WORDS],
    reserved: [AtomicU64; RECORD_SIZE / 8 - RECORD_WORDS],
}

/// The figures of a vCPU.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Page {
    /// Magic, version and number of reasons.
    identity: u64,
    frequency: u64,
    reserved: [u64; RECORDS_OFFSET / 8 - 2],
    records: [Record; RECORDS],
    events: [AtomicU64; EVENTS],
    unused: [u64; (PAGE_SIZE - EVENTS_OFFSET) / 8 - EVENTS],
}

const _: () = assert!(Reason::ALL.len() <= RECORDS);
// Assembly has tables of 16-bit offsets.
const _: () = assert!(PAGE_SIZE <= 1 << 16);
const _: () = assert!(Event::ALL.len() <= EVENTS);
// The model checker's atomics are larger.
#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<Record>() == RECORD_SIZE);
    assert!(size_of::<Page>() == PAGE_SIZE);
    assert!(core::mem::offset_of!(Page, frequency) == 8);
    assert!(core::mem::offset_of!(Page, records) == RECORDS_OFFSET);
    assert!(core::mem::offset_of!(Page, events) == EVENTS_OFFSET);
};

impl Record {
    /// Makes an empty record.
    #[must_use]
    pub fn new() -> Self {
        let words = core::array::from_fn(|_| AtomicU64::new(0));
        Record { words, reserved: core::array::from_fn(|_| AtomicU64::new(0)) }
    }

    /// Counts an exit; for the writer alone, so that no read-modify-write is needed.
    ///
    /// The bucket comes first, and the total is stored with release: who sees a cost in the total sees its exit in
    /// the histogram, too.
    pub fn add(&self, cost: u64) {
        let place = cost.leading_zeros() as usize;
        if let Some(bucket) = self.words.get(place) {
            bucket.store(bucket.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        }
        let [total, ..] = &self.words;
        total.store(total.load(Ordering::Relaxed).wrapping_add(cost), Ordering::Release);
    }

    /// Reads the figures while they may be added to.
    ///
    /// Each word is read whole, and no exit is missing whose cost is in the total. The histogram may be ahead of the
    /// total by the exits that ended since the total was read.
    #[must_use]
    pub fn read(&self) -> Exits {
        let [total, buckets @ ..] = &self.words;
        let mut exits = Exits { total: total.load(Ordering::Acquire), ..Exits::default() };
        // Leading zeros from 1 to 64 are 63 to 0 significant bits.
        for (count, bucket) in exits.buckets.iter_mut().rev().zip(buckets) {
            *count = bucket.load(Ordering::Relaxed);
        }
        exits
    }

    /// Forgets all figures; see [`Page::clear`].
    pub fn clear(&self) {
        self.words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }
}

impl Default for Record {
    fn default() -> Self {
        Self::new()
    }
}

impl Page {
    /// Makes an empty page for costs in ticks of a counter of `frequency` Hz.
    #[must_use]
    pub fn new(frequency: u64) -> Self {
        let identity = MAGIC as u64 | (VERSION as u64) << 32 | (Reason::ALL.len() as u64) << 48;
        Page {
            identity,
            frequency,
            reserved: [0; _],
            records: core::array::from_fn(|_| Record::new()),
            events: core::array::from_fn(|_| AtomicU64::new(0)),
            unused: [0; _],
        }
    }

    /// Returns the first word: magic, version and number of reasons.
    #[must_use]
    pub fn identity(&self) -> u64 {
        self.identity
    }

    /// Returns the frequency of the counter in Hz.
    #[must_use]
    pub fn frequency(&self) -> u64 {
        self.frequency
    }

    /// Returns the record of a reason.
    #[must_use]
    pub fn record(&self, reason: Reason) -> &Record {
        // Every reason has a record, which is asserted above.
        &self.records[reason.index()]
    }

    /// Counts an event; for the writer alone, so that no read-modify-write is needed.
    #[inline]
    pub fn count(&self, event: Event) {
        self.count_several(event, 1);
    }

    /// Counts an event that happened several times at once; for the writer alone.
    #[inline]
    pub fn count_several(&self, event: Event, times: u64) {
        // Every event has a count, which is asserted above.
        let count = &self.events[event.index()];
        count.store(count.load(Ordering::Relaxed).wrapping_add(times), Ordering::Relaxed);
    }

    /// Counts an event whose count anybody may add to, and the page's writer never adds to otherwise.
    #[inline]
    pub fn count_shared(&self, event: Event) {
        // Every event has a count, which is asserted above.
        self.events[event.index()].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how many times an event happened, modulo 2^64; it may be counted meanwhile.
    #[must_use]
    pub fn events(&self, event: Event) -> u64 {
        self.events[event.index()].load(Ordering::Relaxed)
    }

    /// Forgets all figures. Only while its writer does not write, and ordered before its next write by whatever
    /// lets it run.
    pub fn clear(&self) {
        self.records.iter().for_each(Record::clear);
        self.events.iter().for_each(|count| count.store(0, Ordering::Relaxed));
    }
}
