// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A model of an SMMUv3 (Arm IHI 0070). It reads a stream's entry once, and uses that until it is told to forget it; and so it does with translations,
//! which it forgets when it is asked whether it has done what it was told.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use turnstile_iommu::smmu::Platform;
use turnstile_paging::{PhysAddr, Tables};

/// A register that does not take what is written to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    Cr0,
    IrqCtrl,
    Gbpa,
    Commands,
}

/// The SMMU, and the machine's memory.
pub struct Model {
    pub idr0: u32,
    pub two_levels: bool,
    /// Entries of both queues, as logarithms.
    pub queues: [u32; 2],
    /// Pages that can be allocated.
    pub room: u64,
    pub kept: Option<Kept>,
    /// It refuses all commands.
    pub refuses: bool,
    /// How many events there were, the lost ones included, and writes to registers.
    pub recorded: u32,
    pub writes: u32,
    pub registers: HashMap<u32, u64>,
    pub memory: BTreeMap<u64, u64>,
    pub next: u64,
    /// The entries that it has read.
    pub cached: HashMap<u32, Option<[u64; 8]>>,
    /// The streams that have been used: their entries may be read at any time, word by word.
    pub used: BTreeSet<u32>,
    /// Translations of pages: of which virtual machine, of which page, and whether it may be written.
    pub translated: HashMap<(u16, u64, bool), u64>,
    /// It has been told to forget them.
    pub forgets: bool,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            // Stage 2, 64-bit tables, coherent, ATS, terminating, with a stream table of two levels.
            idr0: 1 | 1 << 3 | 1 << 4 | 1 << 10 | 1 << 24,
            two_levels: true,
            queues: [19, 19],
            room: 1 << 20,
            kept: None,
            refuses: false,
            recorded: 0,
            writes: 0,
            registers: HashMap::new(),
            memory: BTreeMap::new(),
            next: 0x1_0000_0000,
            cached: HashMap::new(),
            used: BTreeSet::new(),
            translated: HashMap::new(),
            forgets: false,
        }
    }
}

impl Tables for Model {
    fn allocate(&mut self, bytes: u64) -> Option<PhysAddr> {
        self.room = self.room.checked_sub(bytes.div_ceil(0x1000))?;
        let at = self.next.next_multiple_of(bytes);
        self.next = at + bytes;
        Some(PhysAddr(at))
    }

    fn free(&mut self, table: PhysAddr, bytes: u64) {
        let root = |entry: &[u64; 8]| entry[3] & 0xf_ffff_ffff_f000;
        let is_used = self.cached.values().flatten().any(|entry| root(entry) == table.0);
        assert!(!is_used, "the SMMU still uses it");
        assert!(!self.forgets, "it has not been asked whether it has forgotten what is there");
        self.room += bytes.div_ceil(0x1000);
    }

    fn read(&self, table: PhysAddr, index: usize) -> u64 {
        self.word(table.0 + 8 * index as u64)
    }

    fn write(&mut self, table: PhysAddr, index: usize, entry: u64) {
        self.check_order(table.0 + 8 * index as u64, entry);
        self.memory.insert(table.0 + 8 * index as u64, entry);
    }

    fn invalidate(&mut self, _: u64, _: u64) {}
}

impl Platform for Model {
    fn get32(&self, offset: u32) -> u32 {
        match offset {
            0x00 => self.idr0 | u32::from(self.two_levels) << 27,
            0x04 => self.queues[0] << 21 | self.queues[1] << 16 | 16,
            // 44 bits, pages of 4 KiB.
            0x14 => 0b100 | 1 << 4,
            _ => self.register(offset) as u32,
        }
    }

    fn set32(&mut self, offset: u32, value: u32) {
        const GBPA_UPDATE: u32 = 1 << 31;
        self.writes += 1;
        match offset {
            0x20 if self.kept != Some(Kept::Cr0) => self.put(0x24, value.into()),
            0x50 if self.kept != Some(Kept::IrqCtrl) => self.put(0x54, value.into()),
            0x44 if self.kept != Some(Kept::Gbpa) => {
                assert_ne!(value & GBPA_UPDATE, 0);
                return self.put(0x44, (value & !GBPA_UPDATE).into());
            }
            0x44 => return self.put(0x44, GBPA_UPDATE.into()),
            _ => {}
        }
        self.put(offset, value.into());
        if offset == 0x98 && self.kept != Some(Kept::Commands) && self.register(0x24) & 1 << 3 != 0 {
            self.consume();
        }
    }

    fn set64(&mut self, offset: u32, value: u64) {
        self.writes += 1;
        self.put(offset, value);
    }

    fn synchronize(&self) {}
}

impl Model {
    fn register(&self, offset: u32) -> u64 {
        self.registers.get(&offset).copied().unwrap_or(0)
    }

    fn put(&mut self, offset: u32, value: u64) {
        self.registers.insert(offset, value);
    }

    fn word(&self, address: u64) -> u64 {
        self.memory.get(&address).copied().unwrap_or(0)
    }

    /// Address and size of a queue.
    fn queue(&self, register: u32) -> (u64, u64) {
        let base = self.register(register);
        (base & 0xf_ffff_ffff_ffe0, 1 << (base & 0x1f))
    }

    /// Does what the command queue has.
    fn consume(&mut self) {
        if (self.register(0x60) ^ self.register(0x64)) & 1 != 0 {
            return;
        }
        let (base, size) = self.queue(0x90);
        while self.register(0x9c) != self.register(0x98) {
            if self.refuses {
                let error = self.register(0x64) ^ 1;
                return self.put(0x60, error);
            }
            let at = base + (self.register(0x9c) & (size - 1)) * 16;
            let [command, range] = [self.word(at), self.word(at + 8)];
            match command as u8 {
                0x03 => {
                    self.cached.remove(&((command >> 32) as u32));
                }
                0x04 => {
                    assert_eq!(range & 31, 31, "all");
                    self.cached.clear();
                }
                0x30 => self.forgets = true,
                0x46 => {
                    if std::mem::take(&mut self.forgets) {
                        self.translated.clear();
                    }
                }
                other => panic!("command {other:#x}"),
            }
            let next = (self.register(0x9c) + 1) & (2 * size - 1);
            self.put(0x9c, next);
        }
    }

    /// Fills the entry of a stream, and what is known of it, with one that lets all through.
    pub fn left_by_firmware(&mut self, stream: u32) {
        self.cached.insert(stream, Some([0b1001, 0, 0, 0, 0, 0, 0, 0]));
        self.put(0x24, 1);
        self.put(0x60, 1);
    }

    /// Whether it looks at what devices say is translated.
    pub fn checks_translated(&self) -> bool {
        self.register(0x24) & 1 << 4 != 0
    }

    /// Whether events interrupt.
    pub fn interrupts(&self) -> bool {
        self.register(0x54) & 1 << 2 != 0
    }

    /// Whether no event waits, and none was lost that nobody knows of.
    pub fn is_quiet(&self) -> bool {
        self.register(0x1_00a8) == self.register(0x1_00ac)
    }

    /// A device reads or writes: where that gets, if anywhere.
    pub fn access(&mut self, stream: u32, address: u64, write: bool) -> Option<u64> {
        if self.register(0x24) & 1 == 0 {
            // GBPA: all is aborted, or passes.
            return (self.register(0x44) & 1 << 20 == 0).then_some(address);
        }
        self.used.insert(stream);
        let entry = match self.cached.get(&stream) {
            Some(entry) => *entry,
            None => {
                let entry = self.fetch(stream);
                self.cached.insert(stream, entry);
                entry
            }
        }?;
        match entry[0] >> 1 & 7 {
            0b000 => None,
            0b100 => Some(address),
            0b110 => self.look_up(&entry, address, write).or_else(|| {
                if entry[2] & 1 << 58 != 0 {
                    self.record([0x10 | u64::from(stream) << 32, 0, address, 0]);
                }
                None
            }),
            other => panic!("configuration {other:#b}"),
        }
    }

    /// The words of an entry that counts, or that is cached as such, are not changed behind its first one (section 3.21.3): whoever reads them meanwhile has
    /// some of before and some of afterwards. Whether faults are recorded may change by itself.
    fn check_order(&self, at: u64, value: u64) {
        const COUNTS: u64 = 1 << 3;
        const RECORDS: u64 = 1 << 58;
        let (entry, number) = (at & !63, at % 64 / 8);
        let changes = (self.word(at) ^ value) & if number == 2 { !RECORDS } else { u64::MAX };
        let Some(stream) = self.used.iter().find(|stream| self.entry_of(**stream) == Some(entry)) else {
            return;
        };
        let counts = |first: u64| first & COUNTS != 0;
        let is_cached = self.cached.get(stream).is_some_and(|read| read.is_some_and(|read| counts(read[0])));
        let is_torn = number != 0 && changes != 0 && (counts(self.word(entry)) || is_cached);
        assert!(!is_torn, "word {number} of stream {stream:#x} changes while it counts");
    }

    /// Reads a stream's entry. There is none of a stream beyond the table: that is not recorded (CR2.RECINVSID).
    fn fetch(&mut self, stream: u32) -> Option<[u64; 8]> {
        let at = self.entry_of(stream)?;
        let entry = [0, 1, 2, 3, 4, 5, 6, 7].map(|word| self.word(at + 8 * word));
        assert_eq!(entry[0] & 1, 1, "C_BAD_STE, which is recorded");
        Some(entry)
    }

    /// Returns where a stream's entry is.
    fn entry_of(&self, stream: u32) -> Option<u64> {
        let (base, shape) = (self.register(0x80) & 0xf_ffff_ffff_ffc0, self.register(0x88));
        if u64::from(stream) >> (shape & 0x3f) != 0 {
            return None;
        }
        if shape >> 16 & 3 == 1 {
            let split = shape >> 6 & 0x1f;
            let first = self.word(base + 8 * (u64::from(stream) >> split));
            if first & 0x1f == 0 {
                return None;
            }
            let index = u64::from(stream) & ((1 << split) - 1);
            assert!(index < 1 << ((first & 0x1f) - 1), "within its span");
            Some((first & 0xf_ffff_ffff_ffc0) + 64 * index)
        } else {
            Some(base + 64 * u64::from(stream))
        }
    }

    /// Translates, by what it knows of the page.
    fn look_up(&mut self, entry: &[u64; 8], address: u64, write: bool) -> Option<u64> {
        let key = (entry[2] as u16, address >> 12, write);
        let known = self.translated.get(&key).map(|page| page | (address & 0xfff));
        known.or_else(|| {
            let found = self.translate(entry, address, write)?;
            self.translated.insert(key, found & !0xfff);
            Some(found)
        })
    }

    /// Walks the tables of stage 2 (Arm ARM D8), of pages of 4 KiB.
    fn translate(&self, entry: &[u64; 8], address: u64, write: bool) -> Option<u64> {
        let control = entry[2];
        assert_eq!((control >> 46 & 3, control >> 51 & 1), (0, 1), "4 KiB, 64 bits");
        let bits = 64 - (control >> 32 & 0x3f);
        let first = match control >> 38 & 3 {
            2 => 0,
            1 => 1,
            other => panic!("start {other}"),
        };
        if address >> bits != 0 {
            return None;
        }
        let mut table = entry[3] & 0xf_ffff_ffff_f000;
        for level in first..4 {
            let shift = 39 - 9 * level;
            let mask = if level == first { u64::MAX } else { 0x1ff };
            let descriptor = self.word(table + 8 * (address >> shift & mask));
            let output = descriptor & 0xffff_ffff_f000;
            match (descriptor & 3, level) {
                (3, 0..3) => table = output,
                (3, _) | (1, 1 | 2) => {
                    let allowed = descriptor >> if write { 7 } else { 6 } & 1 != 0;
                    let offset = address & ((1 << shift) - 1);
                    return allowed.then_some(output | offset);
                }
                _ => return None,
            }
        }
        None
    }

    /// Records an event. Behind a full queue it is lost, which a bit says.
    pub fn record(&mut self, event: [u64; 4]) {
        const OVERFLOW: u64 = 1 << 31;
        self.recorded += 1;
        let (base, size) = self.queue(0xa0);
        let (produced, consumed) = (self.register(0x1_00a8), self.register(0x1_00ac));
        let round = 2 * size - 1;
        if (produced ^ consumed) & round == size {
            if (produced ^ consumed) & OVERFLOW == 0 {
                self.put(0x1_00a8, produced ^ OVERFLOW);
            }
            return;
        }
        for (word, value) in (0..).zip(event) {
            self.memory.insert(base + (produced & (size - 1)) * 32 + 8 * word, value);
        }
        self.put(0x1_00a8, (produced & OVERFLOW) | ((produced + 1) & round));
    }
}
