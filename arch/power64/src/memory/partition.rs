// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The partition table (Power ISA 3.0B Book III, 5.7.6): where a partition's translation begins, by its LPID.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::cpu;
use crate::cpu::regs::PTCR;

/// Entries: LPIDs of POWER9 have twelve bits.
const ENTRIES: usize = 1 << 12;
/// How PTCR says that size: the table has 2^(12 + PATS) bytes.
const PATS: u64 = 4;

/// Two doublewords a partition: its own tables, and the process table that its guest has registered. Big-endian, because
/// walkers read them.
#[repr(C, align(65536))]
struct Table([[AtomicU64; 2]; ENTRIES]);

const _: () = assert!(size_of::<Table>() == 1 << (12 + PATS));

/// The entries of partitions without a VM are zero, LPID 0's for ever: nothing is translated by them.
static TABLE: Table = Table([const { [const { AtomicU64::new(0) }; 2] }; ENTRIES]);

/// Makes this CPU use the table.
pub fn load() {
    // SAFETY: the table lives for ever; what its entries refer to is their writer's concern.
    unsafe { PTCR.write((&raw const TABLE) as u64 | PATS) };
    cpu::isync();
}

/// Sets the entry of a partition of which no vCPU runs, and makes all CPUs forget what they knew by the old one.
///
/// # Panics
/// Never for an LPID of twelve bits.
pub fn set(lpid: u32, partition_scoped: u64, process_table: u64) {
    let entry = &TABLE.0[lpid as usize % ENTRIES];
    // Invalid in between: nobody walks half of each.
    entry[0].store(0, Ordering::Relaxed);
    cpu::ptesync();
    entry[1].store(process_table.to_be(), Ordering::Relaxed);
    cpu::lwsync();
    entry[0].store(partition_scoped.to_be(), Ordering::Relaxed);
    invalidate(lpid);
}

/// Sets the process table of a partition whose vCPUs may run, and makes all CPUs forget what they knew by the old one. By one
/// store: whoever walks meanwhile finds the old one or the new one.
pub fn set_process_table(lpid: u32, process_table: u64) {
    TABLE.0[lpid as usize % ENTRIES][1].store(process_table.to_be(), Ordering::Relaxed);
    invalidate(lpid);
}

/// Returns the entry of a partition.
#[cfg(test)]
pub(crate) fn get(lpid: u32) -> [u64; 2] {
    TABLE.0[lpid as usize % ENTRIES].each_ref().map(|word| u64::from_be(word.load(Ordering::Relaxed)))
}

/// Makes all CPUs forget all translations of a partition, its guest's own and its entry included.
pub fn invalidate(lpid: u32) {
    // The stores to tables are behind the invalidation (Book III, 5.10.1).
    cpu::ptesync();
    #[cfg(target_os = "none")]
    // SAFETY: forgets translations: they are walked again. RIC 2, radix; IS 2: all of the partition. Once of the partition's
    // own tables (PRS 0), once of its guest's (PRS 1).
    unsafe {
        core::arch::asm!(
            "tlbie {is}, {lpid}, 2, 0, 1",
            "tlbie {is}, {lpid}, 2, 1, 1",
            "eieio",
            "tlbsync",
            is = in(reg) 2u64 << 10, lpid = in(reg) u64::from(lpid), options(nostack, preserves_flags)
        );
    }
    #[cfg(not(target_os = "none"))]
    crate::cpu::regs::fakes::write("TLBIE_LPID", lpid.into());
    cpu::ptesync();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::regs::fakes::{self, Access};

    #[test]
    fn an_entry_is_replaced_whole_and_everybody_forgets_the_old_one() {
        const LPID: u32 = 0xabc;
        fakes::reset();
        for [tables, processes] in [[0x8000_0000_0001_2345, 1 << 63 | 0x5_0000], [0, 0]] {
            set(LPID, tables, processes);
            assert_eq!(get(LPID), [tables, processes]);
            assert_eq!(fakes::take_log(), [Access::Write("TLBIE_LPID", LPID.into())]);
        }
    }
}
