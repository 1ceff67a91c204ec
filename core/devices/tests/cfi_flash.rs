// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The flash as its datasheet describes it, and histories of commands against cells that know no commands.

use proptest::prelude::*;
use turnstile_devices::CfiFlash;
use turnstile_devices::cfi_flash::{BLOCK, BUFFER, PIECE, Written};

const SIZE: u64 = 4 * BLOCK;
const READY: u64 = 0x80_0080;

/// A bank with its cells.
struct Bank {
    chips: CfiFlash,
    cells: Vec<u8>,
}

impl Bank {
    fn new() -> Self {
        Self { chips: CfiFlash::new(SIZE), cells: vec![0xff; SIZE as usize] }
    }

    fn read(&mut self, offset: u64, size: u8) -> u64 {
        self.chips.read(&mut self.cells, offset, size).0
    }

    /// A store, repeated as a guest's is; returns the bytes that have changed.
    fn write(&mut self, offset: u64, size: u8, value: u64) -> std::ops::Range<u64> {
        let (mut start, mut end) = (u64::MAX, 0);
        for _ in 0..=BLOCK / PIECE {
            let Written { changed: more, again } = self.chips.write(&mut self.cells, offset, size, value);
            assert!(more.end - more.start <= PIECE, "{more:?}");
            if !more.is_empty() {
                (start, end) = (start.min(more.start), end.max(more.end));
            }
            if !again {
                return start.min(end)..end;
            }
        }
        panic!("it never ends");
    }

    /// A command for both chips.
    fn command(&mut self, offset: u64, command: u64) {
        self.write(offset & !3, 4, command << 16 | command);
    }

    fn program(&mut self, offset: u64, size: u8, value: u64) {
        self.command(0, 0x40);
        self.write(offset, size, value);
    }

    fn erase(&mut self, offset: u64) {
        self.command(offset, 0x20);
        self.command(offset, 0xd0);
    }

    fn lock(&mut self, offset: u64, code: u64) {
        self.command(offset, 0x60);
        self.command(offset, code);
    }

    fn status(&mut self) -> u64 {
        self.command(0, 0x70);
        let status = self.read(0, 4);
        self.command(0, 0x50);
        self.command(0, 0xff);
        status
    }
}

#[test]
fn it_identifies_itself() {
    let mut bank = Bank::new();
    assert!(bank.chips.shows_cells());
    bank.command(0, 0x90);
    assert!(!bank.chips.shows_cells());
    assert_eq!((bank.read(0, 4), bank.read(4, 4), bank.read(12, 4)), (0x89_0089, 0x18_0018, 0));
    assert_eq!(
        (bank.read(0, 1), bank.read(1, 1), bank.read(2, 2), bank.read(0, 8)),
        (0x89, 0, 0x89, 0x18_0018_0089_0089)
    );
    bank.command(0x154, 0x98);
    let query = |bank: &mut Bank, word: u64| {
        let value = bank.read(4 * word, 4);
        assert_eq!(value >> 16, value & 0xffff, "both chips say the same");
        value & 0xffff
    };
    let text: Vec<u8> = (0x10..0x13).map(|word| query(&mut bank, word) as u8).collect();
    assert_eq!(text, b"QRY");
    assert_eq!((query(&mut bank, 0x13), query(&mut bank, 0x14), query(&mut bank, 0x15)), (1, 0, 0x31));
    let extended: Vec<u8> = (0x31..0x36).map(|word| query(&mut bank, word) as u8).collect();
    assert_eq!(extended, b"PRI10");
    assert_eq!(1 << query(&mut bank, 0x27), SIZE / 2);
    assert_eq!(1 << query(&mut bank, 0x2a), BUFFER / 2);
    let blocks = query(&mut bank, 0x2d) + 1 + (query(&mut bank, 0x2e) << 8);
    let block = 256 * (query(&mut bank, 0x2f) + (query(&mut bank, 0x30) << 8));
    assert_eq!((query(&mut bank, 0x2c), blocks, block), (1, SIZE / BLOCK, BLOCK / 2));
    // The largest bank's number of blocks fits its two bytes.
    let mut largest = CfiFlash::new(256 * BLOCK);
    let mut none = [];
    largest.write(&mut none, 0, 2, 0x98);
    assert_eq!(largest.read(&mut none, 4 * 0x2d, 4).0, 0xff_00ff);
    bank.command(0, 0xff);
    assert_eq!(bank.read(0, 8), u64::MAX);
}

#[test]
fn programming_clears_bits_only() {
    let mut bank = Bank::new();
    bank.program(0x100, 4, 0x1234_5678);
    assert_eq!(bank.read(0, 4), READY);
    bank.program(0x100, 4, 0xffff_0f0f);
    bank.program(0x102, 2, 0x00ff);
    bank.program(0x105, 1, 0x42);
    assert!(!bank.chips.shows_cells());
    bank.command(0, 0xff);
    assert_eq!((bank.read(0x100, 4), bank.read(0x104, 4)), (0x0034_0608, 0xffff_42ff));
    // The other command for it; and a command that is none.
    bank.command(0, 0x10);
    bank.write(0x200, 4, 0);
    bank.command(0, 0x33);
    assert_eq!((bank.read(0x200, 4), bank.chips.shows_cells()), (0, true));
}

#[test]
fn a_store_of_any_width_commands_both_chips() {
    for (size, offset) in [(1, 0x55), (1, 0xaa), (2, 0xaa), (4, 0x154), (8, 0x150)] {
        let mut bank = Bank::new();
        bank.write(offset, size, 0x70);
        // Of eight bytes the upper half is another command: none, that shows cells again.
        let expected = if size == 8 { u64::from(u32::MAX) } else { READY };
        assert_eq!(bank.read(0, 4), expected, "{size} bytes");
    }
}

#[test]
fn an_erase_takes_its_time_and_its_block_alone() {
    let mut bank = Bank::new();
    for offset in [BLOCK - 4, BLOCK, 2 * BLOCK - 4, 2 * BLOCK] {
        bank.program(offset, 4, 0);
    }
    bank.command(BLOCK, 0x20);
    let first = bank.chips.write(&mut bank.cells, BLOCK + 8, 4, 0xd0_00d0);
    assert_eq!(first, Written { changed: BLOCK..BLOCK + PIECE, again: true });
    // Others see busy chips, which take nothing.
    assert_eq!(bank.chips.read(&mut bank.cells, 0, 4).0, 0);
    assert!(!bank.chips.write(&mut bank.cells, 0, 4, 0xff_00ff).again);
    let end = (0..).find(|_| !bank.chips.write(&mut bank.cells, BLOCK + 8, 4, 0xd0_00d0).again);
    assert_eq!(end, Some((BLOCK / PIECE) as usize - 4));
    assert_eq!(bank.status(), READY);
    assert_eq!((bank.read(BLOCK - 4, 4), bank.read(2 * BLOCK, 4)), (0, 0));
    assert!(bank.cells[BLOCK as usize..2 * BLOCK as usize].iter().all(|byte| *byte == 0xff));
    // An erase whose end others have brought about: the store that began it is no command any more.
    bank.command(0, 0x20);
    assert!(bank.chips.write(&mut bank.cells, 0, 8, 0x20_0020_00d0_00d0).again);
    while bank.read(0, 4) != READY {}
    assert_eq!(bank.write(0, 8, 0x20_0020_00d0_00d0), 0..0);
    assert_eq!(bank.status(), READY);
    // The same store later is one.
    bank.program(0, 4, 0);
    bank.erase(0);
    assert_eq!(bank.write(0, 4, 0xff_00ff), 0..0);
    assert_eq!(bank.read(0, 4), 0xffff_ffff);
}

/// Each access cleans the caches of what it has changed, and of all that is between.
#[test]
fn one_store_changes_few_bytes() {
    let mut bank = Bank::new();
    // It finds the chips at the last piece of an erase, far away.
    bank.command(0, 0x20);
    assert!(bank.chips.write(&mut bank.cells, 0, 4, 0xd0_00d0).again);
    (0..BLOCK / PIECE - 2).for_each(|_| _ = bank.chips.read(&mut bank.cells, 0, 4));
    let written = bank.chips.write(&mut bank.cells, SIZE - 8, 8, 0x40);
    assert_eq!(written, Written { changed: BLOCK - PIECE..BLOCK, again: false });
    assert_eq!((bank.status(), bank.read(SIZE - 4, 4)), (READY, 0xffff_ffff));

    // It ends a program, and begins an erase of the block, or another program where no buffer goes.
    let middle = BLOCK / 2 + 2;
    bank.command(0, 0x40);
    let written = bank.chips.write(&mut bank.cells, middle, 8, 0x00d0_0000_0020_1234);
    assert_eq!(written, Written { changed: middle..middle + 2, again: false });
    bank.chips.reset();
    bank.command(0, 0xe8);
    bank.command(0, 0);
    bank.write(0, 4, 0);
    let written = bank.chips.write(&mut bank.cells, SIZE - 10, 8, 0x0040_00d0);
    assert_eq!(written, Written { changed: 0..4, again: false });
    bank.chips.reset();
    assert_eq!((bank.read(SIZE - 4, 4), bank.read(middle, 2)), (0xffff_ffff, 0x1234));
}

#[test]
fn a_reset_breaks_an_erase_off_and_keeps_cells_and_locks() {
    let mut bank = Bank::new();
    bank.program(BLOCK - 4, 4, 0);
    bank.lock(BLOCK, 0x01);
    bank.command(0, 0x20);
    assert!(bank.chips.write(&mut bank.cells, 0, 4, 0xd0_00d0).again);
    bank.chips.reset();
    assert!(bank.chips.shows_cells());
    assert_eq!(bank.read(BLOCK - 4, 4), 0);
    bank.program(BLOCK, 4, 0);
    assert_eq!((bank.status(), bank.read(BLOCK, 4)), (0x92_0092, 0xffff_ffff));
    // Errors of the life before are gone.
    bank.program(BLOCK, 4, 0);
    bank.chips.reset();
    assert_eq!(bank.status(), READY);
}

#[test]
fn locks() {
    let mut bank = Bank::new();
    bank.program(BLOCK, 4, 0);
    bank.lock(BLOCK + 0x123, 0x01);
    bank.lock(3 * BLOCK, 0x01);
    assert_eq!(bank.status(), READY);
    bank.command(0, 0x90);
    let locked: Vec<u64> = (0..4).map(|block| bank.read(block * BLOCK + 8, 4)).collect();
    assert_eq!(locked, [0, 0x1_0001, 0, 0x1_0001]);
    bank.command(0, 0x98);
    assert_eq!(bank.read(BLOCK + 8, 4), 0x1_0001);
    bank.erase(BLOCK);
    assert_eq!((bank.status(), bank.read(BLOCK, 4)), (0xa2_00a2, 0));
    bank.program(BLOCK + 4, 4, 0);
    assert_eq!((bank.status(), bank.read(BLOCK + 4, 4)), (0x92_0092, 0xffff_ffff));
    assert_eq!(bank.status(), READY, "errors are cleared");
    bank.lock(0, 0xd0);
    bank.erase(BLOCK);
    bank.erase(3 * BLOCK);
    assert_eq!((bank.status(), bank.read(BLOCK, 4)), (READY, 0xffff_ffff));
    bank.lock(0, 0x2f);
    assert_eq!(bank.status(), 0xb0_00b0, "a code that it does not have");
}

#[test]
fn buffers() {
    let mut bank = Bank::new();
    let fill = |bank: &mut Bank, count: u64, stores: &[(u64, u8, u64)], confirm: u64| {
        bank.command(0, 0xe8);
        assert_eq!(bank.read(0, 4), READY);
        bank.command(0, count - 1);
        stores.iter().for_each(|(offset, size, value)| _ = bank.write(*offset, *size, *value));
        bank.command(0, confirm);
        bank.status()
    };
    assert_eq!(fill(&mut bank, 3, &[(8, 4, 1), (16, 4, 3), (12, 4, 2)], 0xd0), READY);
    assert_eq!([8, 12, 16, 20].map(|offset| bank.read(offset, 4)), [1, 2, 3, 0xffff_ffff]);
    // As drivers do it that see one chip of 16 lines.
    assert_eq!(fill(&mut bank, 2, &[(0x20, 2, 0x1111), (0x22, 2, 0x2222)], 0xd0), READY);
    assert_eq!(bank.read(0x20, 4), 0x2222_1111);
    let error = 0xb0_00b0;
    assert_eq!(fill(&mut bank, 1, &[(0x40, 4, 0)], 0xff), error, "not confirmed");
    assert_eq!(bank.read(0x40, 4), 0xffff_ffff);
    assert_eq!(fill(&mut bank, 1, &[(BLOCK, 4, 0)], 0x70), error, "another block");
    assert_eq!(fill(&mut bank, 2, &[(0x80, 4, 0), (0x80 + BUFFER as u64, 4, 0)], 0x70), error, "too far");
    assert_eq!(fill(&mut bank, 2, &[(0x80, 4, 0), (0x7c, 4, 0)], 0x70), error, "before its start");
    assert_eq!(fill(&mut bank, BUFFER as u64 / 4 + 1, &[], 0x70), error, "too many");
    bank.command(BLOCK, 0xe8);
    bank.command(0, 0);
    assert_eq!(bank.status(), error, "the count for another block");
    bank.lock(0, 0x01);
    assert_eq!(fill(&mut bank, 1, &[(0x60, 4, 0)], 0xd0), 0x92_0092, "a locked block");
    assert_eq!(bank.read(0x60, 4), 0xffff_ffff);
}

#[test]
fn commands_that_do_not_belong_together_change_nothing() {
    let mut bank = Bank::new();
    bank.program(0, 4, 0);
    bank.command(0, 0x20);
    bank.command(0, 0xff);
    assert_eq!(bank.status(), 0xb0_00b0);
    bank.command(0, 0xc0);
    bank.command(0, 0);
    assert_eq!(bank.status(), 0x92_0092, "the protection register");
    bank.command(0, 0xb8);
    bank.command(0, 2);
    bank.command(0, 0xb0);
    assert_eq!(bank.read(0, 4), READY);
    bank.command(0, 0xd0);
    assert_eq!((bank.status(), bank.read(0, 4)), (READY, 0));
}

/// What a driver does.
#[derive(Clone, Debug)]
enum Step {
    Program(u64, u8, u64),
    Buffer(u64, Vec<u32>),
    Erase(u64),
    Lock(u64),
    Unlock,
    Reset,
}

fn steps() -> impl Strategy<Value = Step> {
    let offset = prop_oneof![0..SIZE, (0..4u64, 0..16u64).prop_map(|(block, at)| block * BLOCK + at)];
    let aligned = (0..SIZE / 4).prop_map(|word| 4 * word);
    prop_oneof![
        4 => (offset.clone(), prop::sample::select(vec![1u8, 2, 4]), any::<u64>())
            .prop_map(|(offset, size, value)| Step::Program(offset & !(u64::from(size) - 1), size, value)),
        3 => (aligned, prop::collection::vec(any::<u32>(), 1..20)).prop_map(|(at, words)| Step::Buffer(at, words)),
        1 => offset.clone().prop_map(Step::Erase),
        1 => offset.prop_map(Step::Lock),
        1 => Just(Step::Unlock),
        1 => Just(Step::Reset),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Cells that know no commands are programmed, erased and locked beside the model.
    #[test]
    fn histories(history in prop::collection::vec(steps(), 1..40)) {
        let mut bank = Bank::new();
        let mut cells = vec![0xffu8; SIZE as usize];
        let mut locked = [false; (SIZE / BLOCK) as usize];
        for step in history {
            let block = |offset: u64| (offset / BLOCK) as usize;
            match step {
                Step::Program(offset, size, value) => {
                    bank.program(offset, size, value);
                    let bytes = value.to_le_bytes();
                    if !locked[block(offset)] {
                        (0..usize::from(size)).for_each(|n| cells[offset as usize + n] &= bytes[n]);
                    }
                }
                Step::Buffer(offset, words) => {
                    let fits = block(offset) == block(offset + 4 * words.len() as u64 - 1);
                    bank.command(offset, 0xe8);
                    bank.command(offset, words.len() as u64 - 1);
                    for (at, word) in (offset..).step_by(4).zip(&words) {
                        if block(at) == block(offset) {
                            bank.write(at, 4, u64::from(*word));
                        }
                    }
                    if !fits {
                        // Stores are missing: what follows is taken for data.
                        bank.chips.reset();
                        continue;
                    }
                    bank.command(offset, 0xd0);
                    if !locked[block(offset)] {
                        let bytes = words.iter().flat_map(|word| word.to_le_bytes());
                        cells[offset as usize..].iter_mut().zip(bytes).for_each(|(cell, byte)| *cell &= byte);
                    }
                }
                Step::Erase(offset) => {
                    bank.erase(offset);
                    if !locked[block(offset)] {
                        let start = block(offset) * BLOCK as usize;
                        cells[start..start + BLOCK as usize].fill(0xff);
                    }
                }
                Step::Lock(offset) => {
                    bank.lock(offset, 0x01);
                    locked[block(offset)] = true;
                }
                Step::Unlock => {
                    bank.lock(0, 0xd0);
                    locked = [false; (SIZE / BLOCK) as usize];
                }
                Step::Reset => bank.chips.reset(),
            }
        }
        bank.command(0, 0xff);
        prop_assert!(bank.chips.shows_cells());
        prop_assert!(bank.cells == cells, "the cells differ");
        bank.command(0, 0x90);
        for (block, locked) in locked.iter().enumerate() {
            prop_assert_eq!(bank.read(block as u64 * BLOCK + 8, 2), u64::from(*locked));
        }
    }

    /// Whatever is stored anywhere, what is said to have changed is all that has.
    #[test]
    fn any_access_is_answered(
        accesses in prop::collection::vec(
            (
                prop_oneof![0..SIZE, SIZE - 8..SIZE + 64, Just(u64::MAX), any::<u64>()], 0..=16u8,
                prop_oneof![
                    prop::sample::select(vec![0x20, 0xd0, 0x40, 0xe8, 0x60, 0x01, 0xff, 0x70, 0x98, 0xd0_0000_0020]),
                    any::<u64>(),
                ],
                any::<bool>(),
            ),
            1..100,
        ),
    ) {
        let mut bank = Bank::new();
        bank.cells.fill(0x5a);
        for (offset, size, value, read) in accesses {
            let before = bank.cells.clone();
            let changed = if read {
                let (value, written) = bank.chips.read(&mut bank.cells, offset, size);
                prop_assert!(size >= 8 || value < 1 << (8 * u32::from(size)));
                written.changed
            } else {
                bank.chips.write(&mut bank.cells, offset, size, value).changed
            };
            prop_assert!(changed.end - changed.start <= PIECE, "{changed:?}");
            let (start, end) = (changed.start as usize, changed.end as usize);
            prop_assert!(before[..start] == bank.cells[..start] && before[end..] == bank.cells[end..]);
        }
    }
}
