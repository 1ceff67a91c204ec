// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Translation by radix trees (Power ISA 3.0B Book III, section 5.7.10): the first gibibyte one to one, and behind it a window
//! of 512 pages for tests. Programs run in real mode but within [`translated`]; interrupts are taken in real mode.

use core::arch::asm;
use core::cell::UnsafeCell;

use crate::cpu::{self, msr, spr};
use crate::{hcall, mtspr};

/// Bytes of a page of the window.
pub const PAGE: u64 = 4096;
/// The window.
pub const WINDOW: u64 = 1 << 30;

/// Bits of entries.
pub mod entry {
    /// Valid.
    pub const VALID: u64 = 1 << 63;
    /// Maps a page.
    pub const LEAF: u64 = 1 << 62;
    /// Referenced.
    pub const REFERENCED: u64 = 1 << 8;
    /// Changed.
    pub const CHANGED: u64 = 1 << 7;
    /// Non-idempotent: a device.
    pub const DEVICE: u64 = 2 << 4;
    /// Only for privileged programs.
    pub const PRIVILEGED: u64 = 1 << 3;
    /// Readable.
    pub const READ: u64 = 1 << 2;
    /// Writable.
    pub const WRITE: u64 = 1 << 1;
    /// Executable.
    pub const EXECUTE: u64 = 1;
    /// A page of memory with all rights of privileged programs.
    pub const USUAL: u64 = VALID | LEAF | REFERENCED | CHANGED | PRIVILEGED | READ | WRITE | EXECUTE;
}

/// Bits of H_REGISTER_PROC_TBL's flags.
pub mod register {
    /// A new table.
    pub const NEW: u64 = 0x18;
    /// No table any more.
    pub const NONE: u64 = 0x10;
    /// Radix trees.
    pub const RADIX: u64 = 4;
    /// The guest invalidates translations itself.
    pub const GTSE: u64 = 1;
}

/// Entries of a root, and of the tables below.
const ROOT: usize = 8192;
const TABLE: usize = 512;

#[repr(C, align(65536))]
struct Tables {
    root: UnsafeCell<[u64; ROOT]>,
    /// Entries of 1 GiB, of 2 MiB, of 4 KiB.
    below: [UnsafeCell<[u64; TABLE]>; 3],
    processes: UnsafeCell<[u64; TABLE]>,
}

// SAFETY: written by the boot CPU through this module, and read by the CPUs' translation.
unsafe impl Sync for Tables {}

static TABLES: Tables = Tables {
    root: UnsafeCell::new([0; ROOT]),
    below: [const { UnsafeCell::new([0; TABLE]) }; 3],
    processes: UnsafeCell::new([0; TABLE]),
};

/// Writes an entry, in big-endian order.
fn write(table: u64, index: usize, value: u64) {
    crate::mmio::write64(table + 8 * index as u64, value.to_be());
}

/// Returns the address of the table of processes.
pub fn processes() -> u64 {
    TABLES.processes.get() as u64
}

/// Returns the addresses of the root and of the tables of 1 GiB, 2 MiB and 4 KiB.
pub fn tables() -> [u64; 4] {
    let [gibibytes, large, small] = &TABLES.below;
    [TABLES.root.get() as u64, gibibytes.get() as u64, large.get() as u64, small.get() as u64]
}

/// Builds the trees, and registers the table of processes; returns the hypervisor's status.
pub fn init() -> i64 {
    let [root, gibibytes, large, small] = tables();
    let below = |address: u64| entry::VALID | address | 9;
    write(root, 0, below(gibibytes));
    write(gibibytes, 0, entry::USUAL);
    write(gibibytes, 1, below(large));
    write(large, 0, below(small));
    // 52 bits of address: 31 + 21, the root has 2^13 entries.
    let tree = 2 << 61 | root | 5 << 5 | 13;
    for process in 0..2 {
        write(processes(), 2 * process, tree);
    }
    mtspr!(spr::PIDR, 0);
    let flags = register::NEW | register::RADIX | register::GTSE;
    // 4 KiB: the size is told as a power of two, less 12.
    let status = hcall::call(hcall::REGISTER_PROC_TBL, [flags, processes(), 0, 0]);
    flush();
    status
}

/// Sets the entry of a page of the window, and returns the page's address.
pub fn set_page(index: usize, value: u64) -> u64 {
    let [.., small] = tables();
    write(small, index % TABLE, value);
    flush();
    WINDOW + PAGE * (index % TABLE) as u64
}

/// Returns the entry of a page of the window.
pub fn page(index: usize) -> u64 {
    let [.., small] = tables();
    u64::from_be(crate::mmio::read64(small + 8 * (index % TABLE) as u64))
}

/// Invalidates all translations of process 0, on all CPUs.
pub fn flush() {
    // All of a process: IS=1, RIC=2, PRS=1, R=1 (section 5.9.3.3). Both barriers are what section 5.10.1 wants: stores to
    // tables before, the end of all invalidations behind.
    // SAFETY: forgets what can be looked up again.
    unsafe {
        asm!("ptesync", "tlbie {}, {}, 2, 1, 1", "eieio", "tlbsync", "ptesync",
            in(reg) 1_u64 << 10, in(reg) 0_u64, options(nostack));
    }
}

/// Calls a function with translation on.
pub fn translated<T>(function: impl FnOnce() -> T) -> T {
    let before = cpu::msr();
    // SAFETY: this program is mapped one to one.
    unsafe { asm!("mtmsrd {}", "isync", in(reg) before | msr::IR | msr::DR, options(nostack)) };
    let result = function();
    // SAFETY: as above.
    unsafe { asm!("mtmsrd {}", "isync", in(reg) before, options(nostack)) };
    result
}
