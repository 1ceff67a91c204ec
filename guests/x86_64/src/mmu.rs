// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The page tables: 4 GiB one to one (see [`crate::boot`]), and a window of 2 MiB for what tests map (AMD APM vol. 2,
//! section 5.3).

use core::arch::{asm, global_asm};
use core::cell::UnsafeCell;

use crate::{cpu, read_control};

/// The page tables that the first instructions build: PML4, page-directory-pointer table, four page directories.
#[repr(C, align(4096))]
pub struct Tables(pub UnsafeCell<[u64; 6 * 512]>);

// SAFETY: written by the first instructions, and afterwards only by what is here, by the boot CPU.
unsafe impl Sync for Tables {}

/// The page tables of all CPUs.
pub static TABLES: Tables = Tables(UnsafeCell::new([0; 6 * 512]));

/// The window's address: the second entry of the PML4.
pub const WINDOW: u64 = 1 << 39;
/// Bytes of the window.
pub const WINDOW_SIZE: u64 = 2 << 20;
/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// Bits of an entry.
pub mod entry {
    /// Present.
    pub const PRESENT: u64 = 1;
    /// Writable.
    pub const WRITE: u64 = 2;
    /// For privilege level 3, too.
    pub const USER: u64 = 4;
    /// Not cached.
    pub const UNCACHED: u64 = 0x18;
    /// Accessed.
    pub const ACCESSED: u64 = 0x20;
    /// Written.
    pub const DIRTY: u64 = 0x40;
    /// A page of more than 4 KiB.
    pub const LARGE: u64 = 0x80;
    /// What a table's entry and a page's has, usually.
    pub const USUAL: u64 = PRESENT | WRITE | USER;
}

#[repr(C, align(4096))]
struct Window(UnsafeCell<[[u64; 512]; 3]>);

// SAFETY: only the boot CPU changes them.
unsafe impl Sync for Window {}

static WINDOW_TABLES: Window = Window(UnsafeCell::new([[0; 512]; 3]));

/// The table above the PML4.
#[repr(C, align(4096))]
struct Root(UnsafeCell<[u64; 512]>);

// SAFETY: only the boot CPU changes it.
unsafe impl Sync for Root {}

static ROOT: Root = Root(UnsafeCell::new([0; 512]));

// CR4.LA57 cannot change while paging is on, and without paging there is no long mode (AMD APM vol. 2, sections 3.1.3 and
// 14.6.1): by 32-bit code and back. What is kept lies on the stack, for the upper halves of registers are lost.
global_asm!(
    r#"
    .section .text.five, "ax"
    .global turnstile_five_levels
turnstile_five_levels:              // rdi = the root
    pushq   %rbx
    pushq   %rbp
    pushq   %r12
    pushq   %r13
    pushq   %r14
    pushq   %r15
    pushq   ${code32}
    leaq    1f(%rip), %rax
    pushq   %rax
    lretq
    .code32
1:  movl    %cr0, %eax
    andl    $0x7fffffff, %eax       // PG
    movl    %eax, %cr0
    movl    %cr4, %edx
    orl     $0x1000, %edx           // LA57
    movl    %edx, %cr4
    movl    %edi, %cr3
    orl     $0x80000000, %eax
    movl    %eax, %cr0
    ljmp    ${code}, $2f
    .code64
2:  movl    %esp, %esp
    popq    %r15
    popq    %r14
    popq    %r13
    popq    %r12
    popq    %rbp
    popq    %rbx
    ret
    "#,
    code32 = const cpu::selector::CODE32,
    code = const cpu::selector::CODE,
    options(att_syntax),
);

unsafe extern "C" {
    fn turnstile_five_levels(root: u64);
}

/// Says whether this machine has five levels of page tables (CPUID 7 ECX bit 16).
pub fn has_five_levels() -> bool {
    let [most, ..] = cpu::cpuid(0, 0);
    let [_, _, ecx, _] = if most >= 7 { cpu::cpuid(7, 0) } else { [0; 4] };
    ecx >> 16 & 1 != 0
}

/// Puts a fifth level above the four, for this CPU. Interrupts are masked.
pub fn use_five_levels() {
    let root = ROOT.0.get().cast::<u64>();
    // SAFETY: all addresses of this program lie below 4 GiB, and mean under the new root what they meant before.
    unsafe {
        root.write_volatile(TABLES.0.get() as u64 | entry::USUAL);
        turnstile_five_levels(root as u64);
    }
}

fn table(level: usize) -> *mut u64 {
    WINDOW_TABLES.0.get().cast::<u64>().wrapping_add(512 * level)
}

fn write(slot: *mut u64, value: u64) {
    // SAFETY: callers name slots of the tables here, that map the window only.
    unsafe { slot.write_volatile(value) };
    flush();
}

/// Drops all translations that the CPU holds.
pub fn flush() {
    let root = read_control!("cr3");
    // SAFETY: the same tables.
    unsafe { asm!("mov cr3, {}", in(reg) root, options(nostack, preserves_flags)) };
}

/// Drops the translation of one page.
pub fn flush_page(address: u64) {
    // SAFETY: nothing but the translation goes.
    unsafe { asm!("invlpg [{}]", in(reg) address, options(nostack, preserves_flags)) };
}

/// Returns where the entry of the window's page lies, with the tables above it in place.
pub fn page_slot(page: u64) -> u64 {
    let upper = [(TABLES.0.get().cast::<u64>().wrapping_add(1), 0), (table(0), 1), (table(1), 2)];
    for (slot, next) in upper {
        write(slot, table(next) as u64 | entry::USUAL);
    }
    table(2).wrapping_add(page as usize % 512) as u64
}

/// Writes the entry of the window's page and returns the page's address.
pub fn set_page(page: u64, value: u64) -> u64 {
    write(page_slot(page) as *mut u64, value);
    WINDOW + page % 512 * PAGE
}

/// Maps a page of physical memory into the window and returns its address.
pub fn map_page(page: u64, physical: u64) -> u64 {
    set_page(page, physical | entry::USUAL | entry::UNCACHED)
}

/// Writes the window's entry of the level: 3 for the PML4's, 2 and 1 for those below. Returns the window's address.
pub fn set_upper(level: u64, value: u64) -> u64 {
    page_slot(0);
    match level {
        3 => write(TABLES.0.get().cast::<u64>().wrapping_add(1), value),
        2 => write(table(0), value),
        _ => write(table(1), value),
    }
    WINDOW
}
