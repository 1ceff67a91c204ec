// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The format of a service's program, as the tool makes it from an ELF file and puts it into the bundle.
//!
//! | bytes | what |
//! |---|---|
//! | 0–63 | the header: [`MAGIC`], then 32-bit words in the order of [`Header`] |
//! | 64–4095 | zero |
//! | from 4096 | code, constants, data: each begins at a multiple of 4096 bytes, padded with zeros |
//! | behind them | relocations: offsets, 32-bit words in ascending order |
//!
//! Numbers are little-endian. In the service's address space code, constants and data follow each other from its base on, as in the
//! file; then memory that begins as zeros, of which the last part is *kept* when the service is started anew; then a page that is
//! not mapped; then the stack. A relocation is the offset of a 64-bit word to which the base is added.

use core::fmt;

/// What a program begins with.
pub const MAGIC: [u8; 8] = *b"turnsvc1";
/// The unit of protection, in bytes.
pub const PAGE: u32 = 4096;
/// The most that a program may take in its address space, its stack included.
pub const LIMIT: u32 = 2 << 20;

/// The header, after the magic number. Sizes are in bytes; all but `entry`, `isa` and `relocations` are multiples of [`PAGE`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The machine of its instructions, as ELF numbers them: [`AARCH64`], [`X86_64`] or [`PPC64`].
    pub isa: u32,
    /// Where it is entered: an offset in its code.
    pub entry: u32,
    /// Code: read and executed.
    pub code: u32,
    /// Constants: read.
    pub constants: u32,
    /// Data that the file has: read and written.
    pub data: u32,
    /// Memory that begins as zeros.
    pub zeros: u32,
    /// How much of that, from its end, is kept when it is started anew.
    pub kept: u32,
    /// The stack.
    pub stack: u32,
    /// The number of relocations.
    pub relocations: u32,
    /// Where its device is rung.
    pub doorbells: Doorbells,
}

/// The area of a device in which a write rings and needs no answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Doorbells {
    /// The offset of its first byte in the device.
    pub first: u32,
    /// Its size in bytes; zero if there is none.
    pub size: u32,
    /// Which queue a write rings: that of the number written ([`BY_VALUE`]), or that of the write's place in the area ([`BY_PLACE`]).
    pub by: u32,
}

/// The queue's number is what is written: virtio over MMIO (`QueueNotify`).
pub const BY_VALUE: u32 = 0;
/// The queue's number is the offset in the area, divided by four: virtio over PCI with a multiplier of 4.
pub const BY_PLACE: u32 = 1;

/// The offset of `QueueNotify` among the registers of a device behind MMIO (virtio 1.2, section 4.2.2).
const QUEUE_NOTIFY: u32 = 0x50;

impl Doorbells {
    /// No area.
    pub const NONE: Self = Self { first: 0, size: 0, by: BY_VALUE };

    /// Returns where the device is rung if it is behind MMIO: `QueueNotify` has the queues of all its places.
    pub const fn behind_mmio(self) -> Self {
        match self.size {
            0 => Self::NONE,
            _ => Self { first: QUEUE_NOTIFY, size: 4, by: BY_VALUE },
        }
    }

    /// Returns the queue that a write of `value` at `offset` of the device rings, if it is in the area.
    #[inline(always)] // Of each write.
    pub const fn queue(&self, offset: u64, value: u64) -> Option<u64> {
        let within = offset.wrapping_sub(self.first as u64);
        if within >= self.size as u64 {
            return None;
        }
        Some(if self.by == BY_VALUE { value } else { within / 4 })
    }

    /// Returns it as the words that a program's file has in its section `.doorbells`.
    pub const fn words(self) -> [u32; 3] {
        [self.first, self.size, self.by]
    }

    /// Returns it from such words.
    pub const fn from_words([first, size, by]: [u32; 3]) -> Self {
        Self { first, size, by }
    }
}

/// `EM_AARCH64`.
pub const AARCH64: u32 = 183;
/// `EM_X86_64`.
pub const X86_64: u32 = 62;
/// `EM_PPC64`.
pub const PPC64: u32 = 21;

/// The number of words of a header.
const WORDS: usize = 12;

impl Header {
    /// Returns it as the first page of a file.
    pub fn bytes(&self) -> [u8; PAGE as usize] {
        let mut page = [0; PAGE as usize];
        page[..8].copy_from_slice(&MAGIC);
        for (at, word) in page[8..].chunks_exact_mut(4).zip(self.words()) {
            at.copy_from_slice(&word.to_le_bytes());
        }
        page
    }

    const fn words(&self) -> [u32; WORDS] {
        let Self { isa, entry, code, constants, data, zeros, kept, stack, relocations, doorbells } = *self;
        let [first, size, by] = doorbells.words();
        [isa, entry, code, constants, data, zeros, kept, stack, relocations, first, size, by]
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (magic, rest) = bytes.get(..PAGE as usize)?.split_at(8);
        let mut words =
            rest.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap_or_default()));
        let mut next = || words.next().unwrap_or(0);
        (magic == MAGIC).then(|| Self {
            isa: next(),
            entry: next(),
            code: next(),
            constants: next(),
            data: next(),
            zeros: next(),
            kept: next(),
            stack: next(),
            relocations: next(),
            doorbells: Doorbells::from_words([next(), next(), next()]),
        })
    }

    /// Returns the size of what the file has of the address space.
    pub const fn file(&self) -> u32 {
        self.code + self.constants + self.data
    }

    /// Returns the offset of what is kept.
    pub const fn kept_at(&self) -> u32 {
        self.file() + self.zeros - self.kept
    }

    /// Returns the offset of the lowest byte of the stack. The page below is not mapped.
    pub const fn stack_at(&self) -> u32 {
        self.file() + self.zeros + PAGE
    }

    /// Returns the size of all in the address space: the offset of the stack's top.
    pub const fn size(&self) -> u32 {
        self.stack_at() + self.stack
    }

    fn check(&self) -> Result<(), Error> {
        let sizes = [self.code, self.constants, self.data, self.zeros, self.kept, self.stack];
        if sizes.iter().any(|size| !size.is_multiple_of(PAGE) || *size > LIMIT) || self.kept > self.zeros {
            return Err(Error::Sizes);
        }
        if self.size() > LIMIT {
            return Err(Error::TooLarge);
        }
        if self.stack == 0 {
            return Err(Error::NoStack);
        }
        if self.entry >= self.code || !self.entry.is_multiple_of(4) {
            return Err(Error::Entry);
        }
        if self.doorbells.by > BY_PLACE {
            return Err(Error::Doorbells(self.doorbells.by));
        }
        Ok(())
    }
}

/// Why a program cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// It does not begin as one.
    Magic,
    /// It is for another architecture, whose ELF number this is.
    Isa(u32),
    /// A size is not a multiple of a page, or is too large.
    Sizes,
    /// It takes more than [`LIMIT`].
    TooLarge,
    /// It has no stack.
    NoStack,
    /// It is not entered in its code.
    Entry,
    /// Its doorbells name a queue in a way that is none.
    Doorbells(u32),
    /// The file has another length than its header says.
    Length,
    /// A relocation is outside of constants and data, or not at a multiple of eight bytes, or not behind the one before.
    Relocation,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Magic => "it is not the program of a service",
            Self::Isa(isa) => return write!(f, "it is for another architecture (ELF machine {isa})"),
            Self::Sizes => "a size in its header is wrong",
            Self::TooLarge => "it takes more than 2 MiB",
            Self::NoStack => "it has no stack",
            Self::Entry => "its entry is not in its code",
            Self::Doorbells(by) => {
                return write!(f, "its doorbells name queues in a way that is not known ({by})");
            }
            Self::Length => "it is cut off, or longer than its header says",
            Self::Relocation => "a relocation is wrong",
        })
    }
}

/// A program that has been checked.
#[derive(Clone, Copy, Debug)]
pub struct Image<'a> {
    header: Header,
    contents: &'a [u8],
    relocations: &'a [u8],
}

impl<'a> Image<'a> {
    /// Checks a file for a machine of architecture `isa`.
    ///
    /// # Errors
    /// If anything of it is wrong.
    pub fn parse(file: &'a [u8], isa: u32) -> Result<Self, Error> {
        let header = Header::read(file).ok_or(Error::Magic)?;
        if header.isa != isa {
            return Err(Error::Isa(header.isa));
        }
        header.check()?;
        let rest = &file[PAGE as usize..];
        let (contents, relocations) = rest.split_at_checked(header.file() as usize).ok_or(Error::Length)?;
        if Some(relocations.len()) != (header.relocations as usize).checked_mul(4) {
            return Err(Error::Length);
        }
        let image = Self { header, contents, relocations };
        let mut least = header.code;
        for offset in image.relocations() {
            if offset < least || !offset.is_multiple_of(8) || offset >= header.file() {
                return Err(Error::Relocation);
            }
            least = offset + 8;
        }
        Ok(image)
    }

    /// Returns its header.
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// Returns code, constants and data, as in the file.
    pub const fn contents(&self) -> &'a [u8] {
        self.contents
    }

    /// Returns the offsets of the 64-bit words to which the base is added.
    pub fn relocations(&self) -> impl Iterator<Item = u32> + use<'a> {
        let words = self.relocations.chunks_exact(4);
        words.map(|word| u32::from_le_bytes(word.try_into().unwrap_or_default()))
    }

    /// Writes code, constants and data to `memory`, for an address space where they are at `base`.
    ///
    /// # Panics
    /// If `memory` has another length than [`Image::contents`].
    pub fn write(&self, memory: &mut [u8], base: u64) {
        memory.copy_from_slice(self.contents);
        for offset in self.relocations() {
            // Checked by `parse`: all eight bytes are in the contents, whose size is a multiple of a page.
            let word = &mut memory[offset as usize..offset as usize + 8];
            let value = u64::from_le_bytes(word.try_into().unwrap_or_default());
            word.copy_from_slice(&value.wrapping_add(base).to_le_bytes());
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    extern crate std;

    use proptest::prelude::*;
    use std::vec::Vec;

    use super::*;

    fn header() -> Header {
        Header {
            isa: AARCH64,
            entry: 64,
            code: PAGE,
            constants: PAGE,
            data: PAGE,
            zeros: 2 * PAGE,
            kept: PAGE,
            stack: 4 * PAGE,
            relocations: 2,
            doorbells: Doorbells { first: 0x100, size: 8, by: BY_PLACE },
        }
    }

    fn file(header: &Header, relocations: &[u32]) -> Vec<u8> {
        let mut file = header.bytes().to_vec();
        file.resize((PAGE + header.file()) as usize, 0x11);
        file.extend(relocations.iter().flat_map(|offset| offset.to_le_bytes()));
        file
    }

    fn error(change: impl FnOnce(&mut Header)) -> Option<Error> {
        let mut header = header();
        change(&mut header);
        Image::parse(&file(&header, &[PAGE, 2 * PAGE]), AARCH64).err()
    }

    #[test]
    fn relocations_are_applied() {
        let file = file(&header(), &[PAGE, 3 * PAGE - 8]);
        let image = Image::parse(&file, AARCH64).unwrap();
        let mut memory = std::vec![0; image.contents().len()];
        image.write(&mut memory, 0x1_0000_0000);
        let word = |at: u32| u64::from_le_bytes(memory[at as usize..][..8].try_into().unwrap());
        assert_eq!(word(PAGE), 0x1111_1112_1111_1111);
        assert_eq!(word(3 * PAGE - 8), 0x1111_1112_1111_1111);
        assert_eq!(word(PAGE + 8), 0x1111_1111_1111_1111);
    }

    #[test]
    fn places_follow_each_other() {
        assert_eq!(header().kept_at(), 4 * PAGE);
        assert_eq!(header().stack_at(), 6 * PAGE, "a page below the stack is not mapped");
        assert_eq!(header().size(), 10 * PAGE);
    }

    #[test]
    fn a_write_in_the_area_rings() {
        let file = file(&header(), &[PAGE, 2 * PAGE]);
        let doorbells = Image::parse(&file, AARCH64).unwrap().header().doorbells;
        assert_eq!(doorbells, header().doorbells);
        let places =
            [0xff, 0x100, 0x103, 0x104, 0x107, 0x108, u64::MAX].map(|offset| doorbells.queue(offset, 9));
        assert_eq!(places, [None, Some(0), Some(0), Some(1), Some(1), None, None]);
        let by_value = Doorbells { by: BY_VALUE, ..doorbells };
        assert_eq!([0x100, 0x108].map(|offset| by_value.queue(offset, u64::MAX)), [Some(u64::MAX), None]);
        assert_eq!(Doorbells::NONE.queue(0, 0), None);
        let notify = doorbells.behind_mmio();
        assert_eq!([0x4c, 0x50, 0x54].map(|offset| notify.queue(offset, 1)), [None, Some(1), None]);
        assert_eq!(Doorbells::NONE.behind_mmio(), Doorbells::NONE);
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert_eq!(error(|_| {}), None);
        assert_eq!(error(|header| header.isa = PPC64), Some(Error::Isa(PPC64)));
        assert_eq!(error(|header| header.data = 8), Some(Error::Sizes));
        assert_eq!(error(|header| header.kept = 3 * PAGE), Some(Error::Sizes));
        assert_eq!(error(|header| header.zeros = LIMIT), Some(Error::TooLarge));
        assert_eq!(error(|header| header.zeros = u32::MAX - 4095), Some(Error::Sizes));
        assert_eq!(error(|header| header.stack = 0), Some(Error::NoStack));
        assert_eq!(error(|header| header.entry = PAGE), Some(Error::Entry));
        assert_eq!(error(|header| header.relocations = 3), Some(Error::Length));
        assert_eq!(error(|header| header.doorbells.by = 2), Some(Error::Doorbells(2)));
        let refused = |relocations: &[u32]| Image::parse(&file(&header(), relocations), AARCH64).err();
        assert_eq!(refused(&[0, PAGE]), Some(Error::Relocation), "code is the same wherever it is");
        assert_eq!(refused(&[PAGE, PAGE]), Some(Error::Relocation));
        assert_eq!(refused(&[PAGE, 3 * PAGE]), Some(Error::Relocation));
        assert_eq!(refused(&[PAGE + 4, 2 * PAGE]), Some(Error::Relocation));
        assert_eq!(Image::parse(b"turnsvc1", AARCH64).err(), Some(Error::Magic));
    }

    proptest! {
        #[test]
        fn hostile_programs_do_no_harm(words in proptest::collection::vec(any::<u32>(), WORDS), more in any::<[u8; 64]>()) {
            let mut file = [0; PAGE as usize + 64];
            file[..8].copy_from_slice(&MAGIC);
            for (at, word) in file[8..].chunks_exact_mut(4).zip(&words) {
                at.copy_from_slice(&word.to_le_bytes());
            }
            file[PAGE as usize..].copy_from_slice(&more);
            if let Ok(image) = Image::parse(&file, words[0]) {
                let mut memory = std::vec![0; image.contents().len()];
                image.write(&mut memory, 1 << 40);
            }
        }
    }
}
