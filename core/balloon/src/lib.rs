// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A virtio memory balloon (virtio 1.2, section 5.5) as a pure model: pages that the driver gives and takes back, and reports of free pages.
//!
//! **Crash-only.** Pages are given up before the request is completed, and the driver uses none of them before: to give them up again does
//! no harm. That may take longer than a call: then the request stays open, and whoever serves it asks again.
#![no_std]
#![forbid(unsafe_code)]

mod collected;

pub use collected::{BLOCK, Collected, PAGE};

use turnstile_virtio::config::Balloon;
use turnstile_virtio::device::{Cursor, Queue, Turn};
use turnstile_virtio::features::Features;
use turnstile_virtio::memory::Memory;
use turnstile_virtio::ring::{Layout, Options};
use turnstile_virtio::violation::Violation;

/// How many buffers a request has at most: Linux reports up to 32 ranges at once.
pub const BUFFERS: u32 = 64;

/// The features to offer, those of rings included. The queues are: 0 for pages that are given, 1 for those that are taken back, 2 for
/// reports.
pub const FEATURES: Features = Features::INDIRECT_DESC
    .union(Features::EVENT_IDX)
    .union(Features::RING_RESET)
    .union(Balloon::MUST_TELL_HOST)
    .union(Balloon::DEFLATE_ON_OOM)
    .union(Balloon::PAGE_POISON)
    .union(Balloon::PAGE_REPORTING);

/// The memory of the guest, as whoever maps it sees it. Addresses and lengths are those of whole pages.
pub trait Pages {
    /// These bytes are free. What they hold is lost; once the guest touches them, they are memory again, filled with zeroes. It does not say so
    /// before.
    fn report(&mut self, address: u64, length: u64);

    /// The guest has given these bytes away. What they hold is lost. It says so before it uses them again, if that was agreed on
    /// ([`Balloon::MUST_TELL_HOST`]); then they are as those that it has reported.
    fn inflate(&mut self, address: u64, length: u64);

    /// The guest uses these again that it had given away.
    fn deflate(&mut self, address: u64, length: u64);

    /// Says whether all that was reported or given is gone, or will stay. The driver may use it as soon as its request is completed, so that
    /// waits for this.
    fn is_settled(&mut self) -> bool;
}

/// What the pages of a queue are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Numbers of pages that the driver gives.
    Inflate,
    /// Numbers of pages that it takes back.
    Deflate,
    /// Buffers that are free. They keep `poison`, if that is agreed on.
    Report,
}

/// A queue of a balloon.
#[derive(Debug)]
pub struct Balloons {
    kind: Kind,
    ring: Queue,
    /// The request that has begun.
    current: Option<Cursor>,
    /// All of that was told, but not all of it is gone.
    waits: bool,
    /// An interrupt that an earlier life may owe.
    owed: bool,
}

impl Balloons {
    /// Takes over a queue that the driver has enabled.
    pub const fn new(kind: Kind, layout: Layout, options: Options) -> Self {
        Self { kind, ring: Queue::new(layout, options, BUFFERS), current: None, waits: false, owed: false }
    }

    /// Takes up a queue that an earlier life of the device has left.
    pub fn resume<M: Memory>(
        kind: Kind,
        memory: &M,
        layout: Layout,
        options: Options,
    ) -> Result<Self, Violation> {
        let ring = Queue::resume(memory, layout, options, BUFFERS)?;
        Ok(Self { kind, ring, current: None, waits: false, owed: true })
    }

    /// Says whether a request waits for pages that are not gone yet. It goes on when it is served again.
    pub const fn waits(&self) -> bool {
        self.waits
    }

    /// Does what the driver asks for, up to `most` pages or reports. `poison` is what free pages are filled with, if that was agreed on.
    pub fn serve<M: Memory, P: Pages>(
        &mut self,
        memory: &M,
        pages: &mut P,
        poison: u32,
        most: u32,
    ) -> Result<Turn, Violation> {
        let mut interrupt = core::mem::take(&mut self.owed);
        let mut left = most;
        self.waits = false;
        self.ring.suppress(memory)?;
        loop {
            while let Some(fewer) = left.checked_sub(1) {
                left = fewer;
                let mut cursor = match self.current.take() {
                    Some(cursor) => cursor,
                    None => match self.ring.pop(memory)? {
                        Some(chain) => Cursor::new(chain),
                        None => break,
                    },
                };
                let done = match self.kind {
                    Kind::Report => report(&mut cursor, memory, pages, poison)?,
                    Kind::Inflate | Kind::Deflate => self.numbers(&mut cursor, memory, pages)?,
                };
                self.waits = done && self.kind != Kind::Deflate && !pages.is_settled();
                if !done || self.waits {
                    self.current = Some(cursor);
                    if self.waits {
                        break;
                    }
                    continue;
                }
                self.ring.complete(memory, cursor.finish(), 0)?;
            }
            interrupt |= self.ring.publish(memory)?;
            if self.waits {
                // Whoever serves it comes back, so the driver need not notify.
                return Ok(Turn { interrupt, again: false });
            }
            if left == 0 || !self.ring.arm(memory)? {
                return Ok(Turn { interrupt, again: left == 0 });
            }
        }
    }

    /// The next numbers of pages; those that lie together are one range. Returns whether there are no more.
    fn numbers<M: Memory, P: Pages>(
        &self,
        cursor: &mut Cursor,
        memory: &M,
        pages: &mut P,
    ) -> Result<bool, Violation> {
        let mut numbers = [0; 4 * 64];
        let length = cursor.read(memory, &mut numbers)?;
        let (mut first, mut count) = (0, 0);
        let mut tell = |first: u64, count: u64| {
            let (address, length) = (first * PAGE, count * PAGE);
            match self.kind {
                _ if count == 0 => {}
                Kind::Inflate => pages.inflate(address, length),
                _ => pages.deflate(address, length),
            }
        };
        let (numbers, _) = numbers.get(..length).unwrap_or_default().as_chunks::<4>();
        for &number in numbers {
            let number = u64::from(u32::from_le_bytes(number));
            if !memory.contains(number * PAGE, PAGE) {
                continue;
            }
            if count != 0 && number == first + count {
                count += 1;
                continue;
            }
            tell(first, count);
            (first, count) = (number, 1);
        }
        tell(first, count);
        Ok(length < 4 * 64)
    }
}

/// The next buffer that is free. Returns whether there are no more.
fn report<M: Memory, P: Pages>(
    cursor: &mut Cursor,
    memory: &M,
    pages: &mut P,
    poison: u32,
) -> Result<bool, Violation> {
    let Some(buffer) = cursor.piece(memory, true, u32::MAX)? else { return Ok(true) };
    let first = buffer.address.saturating_add(PAGE - 1) / PAGE * PAGE;
    let end = buffer.address.saturating_add(buffer.length.into()) / PAGE * PAGE;
    // Pages that come back are zero, so those that must keep another value stay (section 5.5.6.7.1).
    if first < end && poison == 0 {
        pages.report(first, end - first);
    }
    Ok(false)
}
