// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Global descriptor table and task state segment, of which each CPU has its own.

#[cfg(target_os = "none")]
use super::area::{PerCpu, STACK_TAIL};

use core::cell::UnsafeCell;

/// Selector of 64-bit code; `boot.S` has a table with the same order.
pub const CODE_SELECTOR: u16 = 0x18;
/// Selector of data.
pub const DATA_SELECTOR: u16 = 0x10;
/// Selector of the task state segment.
pub const TSS_SELECTOR: u16 = 0x20;

/// Global descriptor table and task state segment of a CPU (APM vol. 2, 4.8.3, 12.2.5).
#[derive(Debug)]
#[repr(C, align(16))]
pub struct Descriptors {
    gdt: [u64; 6],
    /// In 32-bit words: RSP0 to RSP2 at 1, IST1 at 9, the I/O map's offset in the upper half of 25.
    tss: [u32; 26],
}

impl Descriptors {
    /// Makes those of a CPU that have yet to be used.
    pub const fn new() -> Self {
        // As in boot.S: nothing, 32-bit code, data, 64-bit code.
        Self {
            gdt: [0, 0x00cf_9b00_0000_ffff, 0x00cf_9300_0000_ffff, 0x00af_9b00_0000_ffff, 0, 0],
            tss: [0; 26],
        }
    }

    /// Fills them in: exceptions run on the stack whose block ends at `fault_stack_end`.
    #[cfg(target_os = "none")]
    fn fill(&mut self, fault_stack_end: u64) {
        let stack = fault_stack_end - STACK_TAIL;
        self.tss[9] = stack as u32;
        self.tss[10] = (stack >> 32) as u32;
        let size = size_of_val(&self.tss) as u64;
        self.tss[25] = (size as u32) << 16;
        let base = self.tss.as_ptr() as u64;
        const AVAILABLE_TSS: u64 = 0x89 << 40;
        self.gdt[4] = (size - 1) | (base & 0xff_ffff) << 16 | AVAILABLE_TSS | (base >> 24 & 0xff) << 56;
        self.gdt[5] = base >> 32;
    }
}

impl Default for Descriptors {
    fn default() -> Self {
        Self::new()
    }
}

/// Those of a CPU, in its area.
#[derive(Debug, Default)]
pub struct Own(pub UnsafeCell<Descriptors>);

// SAFETY: only its own CPU touches them, in `load`.
unsafe impl Sync for Own {}

impl Own {
    /// Makes those of a CPU that have yet to be used.
    pub const fn new() -> Self {
        Self(UnsafeCell::new(Descriptors::new()))
    }
}

/// What LGDT and LIDT load (APM vol. 2, 4.6.2).
#[repr(C, packed)]
pub struct Pointer {
    /// Offset of the last byte.
    pub limit: u16,
    /// Address of the table.
    pub base: u64,
}

/// Gives this CPU its descriptors.
///
/// # Safety
/// `area` is this CPU's, lives for ever, and its fault stack is mapped.
#[cfg(target_os = "none")]
pub unsafe fn load(area: &PerCpu) {
    // SAFETY: only the area's own CPU touches its descriptors, here, before they are in use.
    let descriptors = unsafe { &mut *area.slot::<Own>().0.get() };
    descriptors.fill(area.fault_stack_end);
    let pointer =
        Pointer { limit: size_of_val(&descriptors.gdt) as u16 - 1, base: descriptors.gdt.as_ptr() as u64 };
    // SAFETY: the table has the same code and data segments at the same places as the one in use.
    unsafe {
        core::arch::asm!(
            "lgdt [{pointer}]", "mov ss, {data:x}", "mov ds, {data:x}", "mov es, {data:x}", "ltr {tss:x}",
            pointer = in(reg) &pointer, data = in(reg) DATA_SELECTOR, tss = in(reg) TSS_SELECTOR,
            options(nostack, preserves_flags)
        );
    }
}
