// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An IOMMU by 48882, as far as its driver uses it. It remembers each entry that it has read until it is told to forget it.

use std::collections::BTreeMap;

use turnstile_iommu::amd_vi::Platform;
use turnstile_paging::{PhysAddr, Tables};

const ENTRY: u32 = 16;
pub const LOG: u32 = 256 * ENTRY;

/// A machine with IOMMUs.
pub struct Machine {
    /// By pages.
    memory: BTreeMap<u64, Box<[u64; 512]>>,
    next: u64,
    /// How many tables there is still memory for.
    pub room: usize,
    /// The tables that were given back.
    pub freed: Vec<u64>,
    pub units: Vec<Unit>,
}

pub struct Unit {
    pub registers: BTreeMap<u32, u32>,
    /// It does nothing that it is told.
    pub is_dead: bool,
    devices: BTreeMap<u16, [u64; 4]>,
    messages: BTreeMap<(u16, u64), u32>,
    /// By domain and page: where that leads, if anywhere.
    pages: BTreeMap<(u16, u64), Option<u64>>,
}

impl Unit {
    fn get(&self, offset: u32) -> u32 {
        self.registers.get(&offset).copied().unwrap_or(0)
    }

    fn wide(&self, offset: u32) -> u64 {
        u64::from(self.get(offset)) | u64::from(self.get(offset + 4)) << 32
    }
}

impl Machine {
    pub fn new(units: usize) -> Self {
        let unit = || Unit {
            registers: BTreeMap::from([(0x30, 1 << 6)]),
            is_dead: false,
            devices: BTreeMap::new(),
            messages: BTreeMap::new(),
            pages: BTreeMap::new(),
        };
        let units = (0..units).map(|_| unit()).collect();
        Self { memory: BTreeMap::new(), next: 1 << 30, room: usize::MAX, freed: Vec::new(), units }
    }

    fn word(&self, address: u64) -> u64 {
        self.memory.get(&(address >> 12)).map_or(0, |page| page[address as usize % 4096 / 8])
    }

    fn store(&mut self, address: u64, word: u64) {
        let page = self.memory.entry(address >> 12).or_insert_with(|| Box::new([0; 512]));
        page[address as usize % 4096 / 8] = word;
    }

    /// What is said of a function (section 2.2.2).
    fn device(&mut self, unit: usize, function: u16) -> [u64; 4] {
        let base = self.units[unit].wide(0);
        assert_eq!(base & 0xfff, 511, "the table is of the whole segment");
        let read =
            [0, 8, 16, 24].map(|at| self.word((base & 0xf_ffff_ffff_f000) + u64::from(function) * 32 + at));
        *self.units[unit].devices.entry(function).or_insert(read)
    }

    /// A function reads or writes at an address. Returns what it reaches.
    pub fn access(&mut self, unit: usize, function: u16, address: u64, writes: bool) -> Option<u64> {
        if self.units[unit].get(0x18) & 1 == 0 {
            return Some(address);
        }
        let [first, second, ..] = self.device(unit, function);
        assert_eq!(first & 0b11, 0b11, "nothing passes");
        let allowed = if writes { 1 << 62 } else { 1 << 61 };
        let domain = second as u16;
        let page = address & !0xfff;
        let walked = (first & allowed != 0).then(|| self.walk(first, page, allowed)).flatten();
        let reached = match first & allowed {
            0 => None,
            _ => *self.units[unit].pages.entry((domain, page)).or_insert(walked),
        };
        if reached.is_none() && second >> 34 & 1 == 0 {
            self.record(unit, 2 << 60 | u64::from(function), address);
        }
        reached.map(|page| page | address & 0xfff)
    }

    /// Walks page tables (section 2.2.3).
    fn walk(&self, mut entry: u64, address: u64, allowed: u64) -> Option<u64> {
        let mut level = entry >> 9 & 7;
        assert_eq!(level, 4);
        if address >> 48 != 0 {
            return None;
        }
        loop {
            let shift = 12 + 9 * (level - 1);
            let next = self.word((entry & 0xf_ffff_ffff_f000) + (address >> shift & 511) * 8);
            if next & 1 == 0 || next & allowed == 0 {
                return None;
            }
            if next >> 9 & 7 == 0 {
                let inside = address & ((1 << shift) - 1);
                return Some((next & 0xf_ffff_ffff_f000) | inside);
            }
            assert_eq!(next >> 9 & 7, level - 1, "no level is left out");
            (entry, level) = (next, level - 1);
        }
    }

    /// A function sends a message. Returns the vector and the destination, or the message if it passes as it is.
    pub fn message(&mut self, unit: usize, function: u16, data: u32) -> Option<Result<(u8, u8), u32>> {
        if self.units[unit].get(0x18) & 1 == 0 {
            return Some(Err(data));
        }
        let [_, _, third, fourth] = self.device(unit, function);
        assert_eq!((fourth, third >> 56 & 0b111, third >> 62), (0, 0, 0), "no NMI, INIT or ExtInt passes");
        if third & 1 == 0 {
            return Some(Err(data));
        }
        if third >> 5 & 1 == 0 {
            // Whatever becomes of it.
            self.record(unit, 2 << 60 | u64::from(function), 0xfee0_0000);
        }
        match third >> 60 & 0b11 {
            0 => return None,
            0b10 => {}
            other => panic!("{other}"),
        }
        let index = u64::from(data & 0x7ff);
        assert!(index < 1 << (third >> 1 & 0xf), "each message has an entry");
        let address = (third & 0xf_ffff_ffff_ffc0) + index * 4;
        let read = (self.word(address & !7) >> (address % 8 * 8)) as u32;
        let entry = *self.units[unit].messages.entry((function, index)).or_insert(read);
        assert_eq!(entry & 0b1111_1110, 0, "fixed, physical");
        (entry & 1 != 0).then_some(Ok(((entry >> 16) as u8, (entry >> 8) as u8)))
    }

    pub fn record(&mut self, unit: usize, first: u64, second: u64) {
        let [control, status] = [0x18, 0x2020].map(|offset| self.units[unit].get(offset));
        if control & 0b100 == 0 || status & 1 != 0 {
            return;
        }
        let (head, tail) = (self.units[unit].get(0x2010), self.units[unit].get(0x2018));
        let next = (tail + ENTRY) % LOG;
        if next == head {
            self.units[unit].registers.insert(0x2020, status | 1);
            return;
        }
        let log = self.units[unit].wide(0x10) & 0xf_ffff_ffff_f000;
        self.store(log + u64::from(tail), first);
        self.store(log + u64::from(tail) + 8, second);
        self.units[unit].registers.insert(0x2018, next);
        self.units[unit].registers.insert(0x2020, status | 0b10);
    }

    /// Does what is in the command buffer (section 2.4).
    fn run(&mut self, unit: usize) {
        if self.units[unit].is_dead || self.units[unit].get(0x18) & 0x1001 != 0x1001 {
            return;
        }
        let base = self.units[unit].wide(0x08);
        assert_eq!(base >> 56, 8, "256 entries");
        while self.units[unit].get(0x2000) != self.units[unit].get(0x2008) {
            let head = self.units[unit].get(0x2000);
            let at = (base & 0xf_ffff_ffff_f000) + u64::from(head);
            let [first, second] = [at, at + 8].map(|at| self.word(at));
            let (id, domain) = (first as u16, (first >> 32) as u16);
            let known = &mut self.units[unit];
            match first >> 60 {
                1 if first & 1 != 0 => {
                    self.store(first & 0xf_ffff_ffff_fff8, second);
                }
                2 => drop(known.devices.remove(&id)),
                3 if second == 0x7fff_ffff_ffff_f003 => known.pages.retain(|(of, _), _| *of != domain),
                5 => known.messages.retain(|(of, _), _| *of != id),
                8 => {
                    known.devices.clear();
                    known.messages.clear();
                    known.pages.clear();
                }
                other => panic!("command {other}"),
            }
            self.units[unit].registers.insert(0x2000, (head + ENTRY) % LOG);
        }
    }
}

impl Platform for Machine {
    fn get32(&self, unit: usize, offset: u32) -> u32 {
        match offset {
            0x2020 => {
                let is_stuck = self.units[unit].is_dead && self.units[unit].get(0x18) != 0;
                let runs = if is_stuck { 8 } else { self.units[unit].get(0x18) << 1 & 8 };
                self.units[unit].get(offset) & !8 | runs
            }
            _ => self.units[unit].get(offset),
        }
    }

    fn set32(&mut self, unit: usize, offset: u32, value: u32) {
        let old = self.units[unit].get(offset);
        let value = if offset == 0x2020 { old & !value } else { value };
        self.units[unit].registers.insert(offset, value);
        self.run(unit);
    }

    fn synchronize(&self) {}
}

impl Tables for Machine {
    fn allocate(&mut self, bytes: u64) -> Option<PhysAddr> {
        self.room = self.room.checked_sub(1)?;
        let at = self.next.next_multiple_of(bytes);
        self.next = at + bytes;
        Some(PhysAddr(at))
    }

    fn free(&mut self, table: PhysAddr, _: u64) {
        let root = |entry: &[u64; 4]| entry[0] & 0xf_ffff_ffff_f000;
        let is_used = |unit: &Unit| unit.devices.values().any(|entry| root(entry) == table.0);
        assert!(!self.units.iter().any(is_used), "an IOMMU still uses it");
        self.freed.push(table.0);
    }

    fn read(&self, table: PhysAddr, index: usize) -> u64 {
        self.word(table.0 + index as u64 * 8)
    }

    fn write(&mut self, table: PhysAddr, index: usize, entry: u64) {
        self.store(table.0 + index as u64 * 8, entry);
    }

    fn invalidate(&mut self, _: u64, _: u64) {}
}
