// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands (NVM Express 1.4, sections 4.2, 5 and 6).

use turnstile_virtio::memory::Memory;

use crate::drive::{MOST_SEGMENTS, PAGE, Refusal, Segment};

/// How many bytes a command has.
pub(super) const LENGTH: u64 = 2 * HALF as u64;
/// And half of one.
pub(super) const HALF: usize = 32;

/// Operations of admin commands.
const CREATE_SUBMISSION_QUEUE: u8 = 0x01;
const CREATE_COMPLETION_QUEUE: u8 = 0x05;
const IDENTIFY: u8 = 0x06;
const SET_FEATURES: u8 = 0x09;
/// Operations of I/O commands.
const FLUSH: u8 = 0x00;
const WRITE: u8 = 0x01;
const READ: u8 = 0x02;
const WRITE_ZEROES: u8 = 0x08;
const DATASET_MANAGEMENT: u8 = 0x09;

/// The feature Number of Queues.
const NUMBER_OF_QUEUES: u32 = 0x07;
/// A queue lies together in memory.
const PHYSICALLY_CONTIGUOUS: u32 = 1;
/// A completion queue interrupts.
const INTERRUPTS_ENABLED: u32 = 2;
/// Attribute - Deallocate of Dataset Management.
const DEALLOCATE_RANGES: u32 = 1 << 2;
/// Deallocate of Write Zeroes.
const DEALLOCATE: u64 = 1 << 25;

/// What the controller is asked to identify (Controller or Namespace Structure).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Structure {
    /// A namespace.
    Namespace = 0,
    /// The controller.
    Controller = 1,
    /// The active namespaces whose numbers are above one.
    Namespaces = 2,
}

/// How many bytes a list of pages has at most: the first page is not in it. Lists begin at a multiple of this, so none crosses a page.
pub(super) const LIST: u64 = 256;
/// How many pages a command has at most. Whose first one is not whole has one more than its bytes fill.
const MOST_PAGES: u64 = MOST_SEGMENTS as u64;
const _: () = assert!((MOST_PAGES - 1) * 8 <= LIST);

/// Where the data of a command are: two entries of Physical Region Pages.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pages([u64; 2]);

impl Pages {
    /// One page.
    pub(super) const fn one(address: u64) -> Self {
        Self([address, 0])
    }

    /// The pages of segments; if there are more than two, `list` is where a list of all but the first is written (section 4.3). The first segment begins
    /// at a multiple of four; where two meet, both are at the edge of a page.
    #[inline] // On the path of every command.
    pub(super) fn new<M: Memory>(memory: &M, segments: &[Segment], list: u64) -> Result<Self, Refusal> {
        let (mut pages, mut end) = (Self::default(), None);
        let mut count = 0;
        for &Segment { address, length } in segments {
            let begins = match end {
                None => address.is_multiple_of(4),
                Some(end) => address.is_multiple_of(PAGE) && u64::is_multiple_of(end, PAGE),
            };
            let behind = address.checked_add(length.into()).filter(|_| begins).ok_or(Refusal::Memory)?;
            let mut page = address;
            while page < behind {
                pages.add(memory, count, page, list)?;
                (count, page) = (count + 1, (page & !(PAGE - 1)).saturating_add(PAGE));
            }
            end = Some(behind);
        }
        Ok(pages)
    }

    /// Adds a page behind so many.
    fn add<M: Memory>(&mut self, memory: &M, count: u64, page: u64, list: u64) -> Result<(), Refusal> {
        let Self([first, second]) = self;
        match count {
            0 => *first = page,
            1 => *second = page,
            MOST_PAGES.. => return Err(Refusal::Memory),
            _ => {
                if count == 2 {
                    memory.write(list, &core::mem::replace(second, list).to_le_bytes())?;
                }
                memory.write(list + 8 * (count - 1), &page.to_le_bytes())?;
            }
        }
        Ok(())
    }
}

/// Blocks of a namespace.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocks {
    pub(super) first: u64,
    /// Not zero.
    pub(super) count: u32,
}

impl Blocks {
    /// How many bytes a range of Dataset Management has.
    const LENGTH: usize = 16;

    /// As a range of Dataset Management: no attributes, the length, the first block.
    pub(super) fn to_range(self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        let fields = [0, self.count, self.first as u32, (self.first >> 32) as u32];
        put(&mut bytes, &fields);
        bytes
    }
}

/// A command: its 16 words, two in each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Command([u64; 8]);

impl Command {
    /// Makes one whose other words are zero. `words` are the tenth to the twelfth.
    const fn new(operation: u8, namespace: u32, Pages([first, second]): Pages, words: [u32; 3]) -> Self {
        let [ten, eleven, twelve] = words;
        let (begin, end) = (pair(operation as u32, namespace), pair(ten, eleven));
        Self([begin, 0, 0, first, second, end, twelve as u64, 0])
    }

    /// Identify into a page.
    pub(super) const fn identify(structure: Structure, namespace: u32, to: u64) -> Self {
        Self::new(IDENTIFY, namespace, Pages::one(to), [structure as u32, 0, 0])
    }

    /// Asks for one I/O queue of each kind.
    pub(super) const fn one_queue() -> Self {
        Self::new(SET_FEATURES, 0, Pages([0; 2]), [NUMBER_OF_QUEUES, 0, 0])
    }

    /// Creates a completion queue that interrupts by the first vector.
    pub(super) const fn completion_queue(number: u16, entries: u16, at: u64) -> Self {
        let words = [queue(number, entries), INTERRUPTS_ENABLED | PHYSICALLY_CONTIGUOUS, 0];
        Self::new(CREATE_COMPLETION_QUEUE, 0, Pages::one(at), words)
    }

    /// Creates a submission queue, whose commands are completed in the completion queue of the same number.
    pub(super) const fn submission_queue(number: u16, entries: u16, at: u64) -> Self {
        let words = [queue(number, entries), (number as u32) << 16 | PHYSICALLY_CONTIGUOUS, 0];
        Self::new(CREATE_SUBMISSION_QUEUE, 0, Pages::one(at), words)
    }

    /// Read.
    pub(super) const fn read(namespace: u32, blocks: Blocks, to: Pages) -> Self {
        Self::of_blocks(READ, namespace, blocks, to)
    }

    /// Write.
    pub(super) const fn write(namespace: u32, blocks: Blocks, from: Pages) -> Self {
        Self::of_blocks(WRITE, namespace, blocks, from)
    }

    /// Write Zeroes.
    pub(super) const fn zero(namespace: u32, blocks: Blocks, deallocate: bool) -> Self {
        let mut command = Self::of_blocks(WRITE_ZEROES, namespace, blocks, Pages([0; 2]));
        if deallocate {
            command.0[6] |= DEALLOCATE;
        }
        command
    }

    /// Flush.
    pub(super) const fn flush(namespace: u32) -> Self {
        Self::new(FLUSH, namespace, Pages([0; 2]), [0; 3])
    }

    /// Dataset Management: deallocates one range, which lies in this page.
    pub(super) const fn discard(namespace: u32, range: Pages) -> Self {
        Self::new(DATASET_MANAGEMENT, namespace, range, [0, DEALLOCATE_RANGES, 0])
    }

    /// A command about up to 65536 blocks.
    const fn of_blocks(operation: u8, namespace: u32, blocks: Blocks, pages: Pages) -> Self {
        let Blocks { first, count } = blocks;
        let last = (count - 1) & 0xffff;
        Self::new(operation, namespace, pages, [first as u32, (first >> 32) as u32, last])
    }

    /// Its bytes under a tag, in halves: as many as memory takes without a call.
    #[inline(always)] // On the path of every command.
    pub(super) fn to_bytes(self, tag: u16) -> [[u8; HALF]; 2] {
        let Self([begin, one, two, three, four, five, six, seven]) = self;
        let halves = [[begin | u64::from(tag) << 16, one, two, three], [four, five, six, seven]];
        halves.map(|words| {
            let mut bytes = [0; HALF];
            bytes.as_chunks_mut().0.iter_mut().zip(words).for_each(|(to, word)| *to = word.to_le_bytes());
            bytes
        })
    }
}

/// Two words.
const fn pair(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

/// The word that names a queue and its size.
const fn queue(number: u16, entries: u16) -> u32 {
    (entries as u32 - 1) << 16 | number as u32
}

/// Writes words.
fn put(bytes: &mut [u8], words: &[u32]) {
    for (to, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
        *to = word.to_le_bytes();
    }
}
