// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The device table (section 2.2.2): what becomes of what a function reaches for. It has an entry for each requester of the segment, and all IOMMUs
//! read the same one.
//!
//! What is not said of a function is refused: memory, its messages, ports, what it says is translated, and what it means for the system's management.

use turnstile_paging::{PhysAddr, Tables};

use super::pages::{LEVELS, READ, WRITE};

/// Requesters of a segment.
const FUNCTIONS: usize = 1 << 16;
/// Words of an entry.
const WORDS: usize = 4;
pub(super) const BYTES: u64 = (FUNCTIONS * WORDS * 8) as u64;

/// The first word: it counts, and what it says of memory does, too.
const VALID: u64 = 0b11;
const LEVELS_SHIFT: u32 = 9;
/// The second word: faults are not recorded.
const SILENT: u64 = 1 << 34;
/// The third word: messages are looked up.
const REMAPPED: u64 = 1;
/// Messages that are refused are not recorded: they say nothing that a program could mend, and SILENT is about memory alone.
const MESSAGES_SILENT: u64 = 1 << 5;
/// The logarithm of the entries of a function's interrupt table.
const MESSAGES_SHIFT: u32 = 1;
/// What becomes of messages: it is in the interrupt table. Without it, they are refused.
const LOOKED_UP: u64 = 0b10 << 60;

/// Entries of an interrupt table (section 2.2.5), as a logarithm: as many as a message can name, so that each has one.
const MESSAGES: u64 = 11;
/// Bytes of such a table; entries have 32 bits.
const TABLE_BYTES: u64 = 4 << MESSAGES;
/// An entry: it counts.
const MESSAGE_VALID: u64 = 1;
const DESTINATION_SHIFT: u32 = 8;
const VECTOR_SHIFT: u32 = 16;

/// What a function may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    /// The root of the tables of its memory, and their number.
    pub memory: Option<(PhysAddr, u16)>,
    /// The table of its messages.
    pub messages: Option<PhysAddr>,
    /// Whether its faults are recorded.
    pub is_heard: bool,
}

impl Entry {
    fn words(self) -> [u64; WORDS] {
        let memory = self.memory.map_or(0, |(root, _)| root.0 | LEVELS << LEVELS_SHIFT | READ | WRITE);
        let domain = self.memory.map_or(0, |(_, domain)| u64::from(domain));
        let silent = if self.is_heard { 0 } else { SILENT };
        let messages = self.messages.map_or(0, |table| table.0 | LOOKED_UP);
        [
            VALID | memory,
            domain | silent,
            REMAPPED | MESSAGES_SILENT | MESSAGES << MESSAGES_SHIFT | messages,
            0,
        ]
    }
}

/// Has all functions reach nothing.
pub(super) fn refuse_all(tables: &mut impl Tables, table: PhysAddr) {
    for function in 0..=u16::MAX {
        write(tables, table, function, Entry::default());
    }
}

/// Has messages of a function that no table is about pass as they are: an I/O APIC's, which are the hypervisor's own. It reaches no memory.
pub(super) fn pass_messages(tables: &mut impl Tables, table: PhysAddr, function: u16) {
    tables.write(table, usize::from(function) * WORDS + 2, 0);
}

/// Writes an entry. The words of a function that has one change from what refuses to what allows, or say the same: the first word, of memory, comes
/// last.
pub(super) fn write(tables: &mut impl Tables, table: PhysAddr, function: u16, entry: Entry) {
    for (word, value) in entry.words().into_iter().enumerate().rev() {
        tables.write(table, usize::from(function) * WORDS + word, value);
    }
}

/// Makes an interrupt table by which the first message interrupts the CPU with this identification by this vector, fixed. No other message does
/// anything.
pub(super) fn messages(tables: &mut impl Tables, vector: u8, destination: u8) -> Option<PhysAddr> {
    let table = tables.allocate(TABLE_BYTES)?;
    let first =
        MESSAGE_VALID | u64::from(destination) << DESTINATION_SHIFT | u64::from(vector) << VECTOR_SHIFT;
    tables.write(table, 0, first);
    Some(table)
}
