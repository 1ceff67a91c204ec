// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state that survives a crash: two records, of which one is whole at any time. The first word says which (1 or 2; 0: none).

use crate::world::World;

/// How many words are kept for records of so many.
pub(crate) const fn room(words: usize) -> usize {
    1 + 2 * words
}

/// Writes the record that is not in use, and then makes it the one that is.
pub(crate) fn write(world: &impl World, length: usize, words: impl IntoIterator<Item = u64>) {
    let other = if world.get(0) == 1 { 2 } else { 1 };
    for (at, word) in (first(other, length)..).zip(words).take(length) {
        world.set(at, word);
    }
    world.set(0, other as u64);
}

/// Says that no record is of use.
pub(crate) fn forget(world: &impl World) {
    world.set(0, 0);
}

/// Reads the record in use.
pub(crate) fn read<W: World>(world: &W, length: usize) -> Option<impl Iterator<Item = u64> + use<'_, W>> {
    let record = match world.get(0) {
        1 => 1,
        2 => 2,
        _ => return None,
    };
    let begin = first(record, length);
    Some((begin..begin + length).map(|at| world.get(at)))
}

const fn first(record: usize, length: usize) -> usize {
    1 + (record - 1) * length
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use turnstile_pci::msix::Message;
    use turnstile_service_rt::GuestMemory;

    use super::*;

    const LENGTH: usize = 5;

    /// Words, of which only so many more are written.
    struct Words([Cell<u64>; room(LENGTH)], Cell<usize>);

    const MEMORY: &GuestMemory = &GuestMemory::own();

    impl World for Words {
        type Memory = GuestMemory;

        fn memory(&self) -> &GuestMemory {
            MEMORY
        }

        fn message(&self, _: Message) {}

        fn flush(&self) {}

        fn decode(&self, _: u8, _: u64, _: u64) -> bool {
            true
        }

        fn time(&self) -> u64 {
            0
        }

        fn get(&self, at: usize) -> u64 {
            self.0[at].get()
        }

        fn set(&self, at: usize, word: u64) {
            if let Some(left) = self.1.get().checked_sub(1) {
                self.1.set(left);
                self.0[at].set(word);
            }
        }
    }

    #[test]
    fn a_record_is_whole_whenever_its_writer_is_killed() {
        for writes in 0..4 * (LENGTH + 1) {
            let words = Words([const { Cell::new(0) }; room(LENGTH)], Cell::new(writes));
            (1..5).for_each(|number| write(&words, LENGTH, [number; LENGTH]));
            let whole = (writes / (LENGTH + 1)) as u64;
            match read(&words, LENGTH) {
                Some(mut record) => assert!(record.all(|word| word == whole) && whole != 0, "{writes}"),
                None => assert_eq!(whole, 0),
            }
        }
        let words = Words([const { Cell::new(1) }; room(LENGTH)], Cell::new(1));
        forget(&words);
        assert!(read(&words, LENGTH).is_none(), "it is forgotten");
        let words = Words([const { Cell::new(3) }; room(LENGTH)], Cell::new(0));
        assert!(read(&words, LENGTH).is_none(), "there is no third record");
    }
}
