// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A guest's own translation, in software: process-scoped radix trees (Power ISA 3.0B Book III, 5.7.6.2 and 5.7.10).

use crate::cpu::regs::{PIDR, msr};
use crate::memory::GuestRam;
use crate::vcpu::frame::Frame;
use crate::vm::Vcpu;

/// Bits of effective addresses that select a table by themselves.
const QUADRANT: u32 = 62;
/// Bits that real addresses of a partition do not have.
pub(super) const REAL: u64 = 0x0fff_ffff_ffff_ffff;
const VALID: u64 = 1 << 63;
const LEAF: u64 = 1 << 62;
const TABLE_ADDRESS: u64 = 0x0fff_ffff_ffff_ff00;
const PAGE_ADDRESS: u64 = 0x01ff_ffff_ffff_f000;
const SIZE: u64 = 0x1f;

/// What the translation of a guest's instruction depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Context {
    /// Its machine state.
    pub msr: u64,
    /// PIDR.
    pub process: u64,
    /// Where its process table is: the second doubleword of the partition table's entry.
    pub process_table: u64,
}

impl Context {
    /// That of an exit of a vCPU.
    #[inline(always)] // A few loads.
    pub(super) fn of(frame: &Frame, vcpu: &'static Vcpu) -> Self {
        Self::at(frame.msr, vcpu)
    }

    /// That of a vCPU whose guest's machine state is `state`.
    #[inline(always)] // As above.
    pub(super) fn at(state: u64, vcpu: &'static Vcpu) -> Self {
        // Where addresses are real it does not matter.
        let process = if state & msr::IR == 0 { 0 } else { PIDR.read() };
        Self { msr: state, process, process_table: vcpu.vm.process_table() }
    }
}

/// Reads the instruction at `pc`; `None` if it is not in the guest's RAM.
#[inline] // A few instructions in real mode.
pub(super) fn fetch(ram: &GuestRam, context: &Context, pc: u64) -> Option<u32> {
    let real = if context.msr & msr::IR == 0 { pc } else { translate(ram, context, pc)? };
    fetch_real(ram, context.msr, real)
}

/// Reads the instruction at a real address.
#[inline(always)] // A few instructions.
pub(super) fn fetch_real(ram: &GuestRam, state: u64, address: u64) -> Option<u32> {
    let word = read32(ram, address & REAL)?;
    Some(if state & msr::LE == 0 { word.swap_bytes() } else { word })
}

/// Translates an effective address.
#[inline(never)] // Not of guests in real mode.
fn translate(ram: &GuestRam, context: &Context, address: u64) -> Option<u64> {
    let process = match address >> QUADRANT {
        0 => context.process,
        3 => 0,
        _ => return None,
    };
    let base = context.process_table & TABLE_ADDRESS & !0xfff;
    if process >= 1 << (12 + (context.process_table & SIZE) - 4) {
        return None;
    }
    let entry = read64(ram, base + process * 16)?;
    let mut left = (entry >> 61 & 3) << 3 | entry >> 5 & 7;
    left += 31;
    if left > 62 || address & !(3 << QUADRANT) & !((1 << left) - 1) != 0 {
        return None;
    }
    let (mut table, mut bits) = (entry & TABLE_ADDRESS, entry & SIZE);
    // The bits that are left to index with, at the top.
    let mut index = address << (64 - left);
    // Every turn uses up index bits, of which there are at least five.
    while bits >= 5 && left >= 12 + bits {
        left -= bits;
        let entry = read64(ram, table + (index >> (64 - bits)) * 8)?;
        index <<= bits;
        if entry & LEAF != 0 {
            let offset = (1 << left) - 1;
            return (entry & VALID != 0).then_some(entry & PAGE_ADDRESS & !offset | address & offset);
        }
        if entry & VALID == 0 {
            return None;
        }
        (table, bits) = (entry & TABLE_ADDRESS, entry & SIZE);
    }
    None
}

/// Reads an entry of a table, which is big-endian.
fn read64(ram: &GuestRam, address: u64) -> Option<u64> {
    // Tables are aligned, and so is RAM: what begins in it is in it.
    let host = ram.host_word(address)?;
    // SAFETY: RAM of the VM, whose vCPU is in an exit; aligned, because tables are. Volatile: others may write.
    Some(u64::from_be(unsafe { core::ptr::read_volatile((host & !7) as *const u64) }))
}

/// Reads a word in little-endian order.
fn read32(ram: &GuestRam, address: u64) -> Option<u32> {
    let host = ram.host_word(address & !3)?;
    // SAFETY: as above.
    Some(u32::from_le(unsafe { core::ptr::read_volatile(host as *const u32) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory of a guest, and where it is.
    fn memory() -> (Vec<u64>, GuestRam) {
        let words = vec![0u64; 0x10_0000 / 8];
        let ram = GuestRam::new(words.as_ptr() as u64, 0x10_0000);
        (words, ram)
    }

    fn set(words: &mut [u64], address: u64, entry: u64) {
        words[address as usize / 8] = entry.to_be();
    }

    const CONTEXT: Context =
        Context { msr: msr::SF | msr::IR | msr::LE, process: 5, process_table: VALID | 0x1_0000 };

    /// 52 bits in levels of 13, 9, 9 and 5 bits: a page of 64 KiB, as Linux has them.
    fn tables(words: &mut [u64], process: u64, address: u64) {
        set(words, 0x1_0000 + process * 16, 1 << 62 | 5 << 5 | 0x2_0000 | 13);
        set(words, 0x2_0000 + (address >> 39 & 0x1fff) * 8, VALID | 0x3_0000 | 9);
        set(words, 0x3_0000 + (address >> 30 & 0x1ff) * 8, VALID | 0x3_1000 | 9);
        set(words, 0x3_1000 + (address >> 21 & 0x1ff) * 8, VALID | 0x3_2000 | 5);
        set(words, 0x3_2000 + (address >> 16 & 0x1f) * 8, VALID | LEAF | 0x4_0000 | 0x187);
    }

    #[test]
    fn instructions_are_found_by_the_guests_tables() {
        for (process, address) in [(5, 0x0001_2345_6789_1234), (0, 0xc000_0000_0123_1234)] {
            let (mut words, ram) = memory();
            tables(&mut words, process, address);
            words[0x4_1230 / 8] = 0x1122_3344_5566_7788;
            let found = fetch(&ram, &CONTEXT, address);
            assert_eq!(found, Some(0x1122_3344), "{address:#x}");
            let big = Context { msr: msr::SF | msr::IR, ..CONTEXT };
            assert_eq!(fetch(&ram, &big, address), Some(0x4433_2211));
            assert_eq!(fetch(&ram, &CONTEXT, address ^ 1 << 62), None, "a quadrant that is nobody's");
            assert_eq!(fetch(&ram, &CONTEXT, address ^ 1 << 52), None, "more than the tree has");
            assert_eq!(fetch(&ram, &CONTEXT, address ^ 1 << 20), None, "no entry");
        }
    }

    #[test]
    fn without_relocation_addresses_are_real() {
        let (mut words, ram) = memory();
        words[0x100] = 0xaaaa_bbbb_cccc_dddd;
        let context = Context { msr: msr::SF | msr::LE, ..CONTEXT };
        assert_eq!(fetch(&ram, &context, 0x804), Some(0xaaaa_bbbb));
        for address in [0xc000_0000_0000_0800, 0x8000_0000_0000_0800, 0xf000_0000_0000_0800] {
            assert_eq!(fetch(&ram, &context, address), Some(0xcccc_dddd), "the highest bits do not count");
        }
        assert_eq!(fetch(&ram, &context, 0x10_0000), None);
    }

    #[test]
    fn tables_of_any_shape_end() {
        let (mut words, ram) = memory();
        // A table that points to itself, with every number of index bits.
        for bits in 0..32 {
            set(&mut words, 0x1_0000 + 5 * 16, 3 << 61 | 7 << 5 | 0x2_0000 | bits);
            for index in 0..0x2_0000 / 8 {
                set(&mut words, 0x2_0000 + index * 8, VALID | 0x2_0000 | bits);
            }
            assert_eq!(fetch(&ram, &CONTEXT, 0x10), None);
        }
        let context = Context { process_table: u64::MAX, ..CONTEXT };
        assert_eq!(fetch(&ram, &context, 0x10), None);
        let context = Context { process: u64::MAX, ..CONTEXT };
        assert_eq!(fetch(&ram, &context, 0x10), None);
    }
}
