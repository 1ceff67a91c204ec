// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The data of each CPU, its segments, and instructions (AMD APM vol. 2 and 3).

mod instructions;

use core::arch::asm;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub use instructions::{
    cpuid, feature, flags, halt_masked, has, initial_apic_id, mask, msr, read_msr, relax, take_interrupts,
    tsc, unmask, wait, write_msr,
};

use turnstile_guests_common::handler::Work;
use turnstile_guests_common::trap::Record;

/// Most CPUs.
pub const MAX_CPUS: usize = 64;
/// Bytes of each of the stacks for exceptions.
pub const EXCEPTION_STACK: usize = 6 << 10;
/// Stacks for exceptions: for most of them, for NMI, for the double fault, and for machine checks.
pub const EXCEPTION_STACKS: usize = 4;

#[repr(C, align(16))]
struct Stacks(UnsafeCell<[[u8; EXCEPTION_STACK]; EXCEPTION_STACKS]>);

/// What belongs to one CPU; GS.base points to it.
#[repr(C, align(64))]
pub struct Cpu {
    /// Its own address.
    pub address: AtomicU64,
    /// The first stack pointer.
    pub stack_top: AtomicU64,
    /// The number of this CPU in the platform's list.
    pub index: AtomicU64,
    /// Its APIC's identifier.
    pub apic_id: AtomicU64,
    /// What it is to do when it starts.
    pub work: Work,
    /// How often it has begun work, and which of them was the last that it has ended.
    pub began: AtomicU64,
    /// See [`Cpu::began`].
    pub ended: AtomicU64,
    /// The exception that it expects.
    pub trap: Record,
    /// NMIs and machine checks that it took.
    pub nmis: AtomicU64,
    /// See [`Cpu::nmis`].
    pub machine_checks: AtomicU64,
    gdt: UnsafeCell<[u64; 10]>,
    tss: UnsafeCell<[u32; 26]>,
    stacks: Stacks,
    /// KVM's word for paravirtual EOI (see [`crate::pv_eoi`]).
    pub eoi: EoiWord,
}

/// A word that lies alone in its cache line.
#[repr(C, align(64))]
pub struct EoiWord(pub AtomicU64);

// SAFETY: GDT, TSS and stacks are written before the CPU uses them, and then by the CPU itself alone.
unsafe impl Sync for Cpu {}

static CPUS: [Cpu; MAX_CPUS] = [const { Cpu::new() }; MAX_CPUS];

/// Selectors of the GDT of each CPU.
pub mod selector {
    /// 64-bit code.
    pub const CODE: u16 = 0x08;
    /// Data.
    pub const DATA: u16 = 0x10;
    /// 32-bit code.
    pub const CODE32: u16 = 0x18;
    /// Data of privilege level 3.
    pub const USER_DATA: u16 = 0x23;
    /// 64-bit code of privilege level 3.
    pub const USER_CODE: u16 = 0x2b;
    /// The task-state segment.
    pub const TSS: u16 = 0x30;
    /// A descriptor that tests may write: see [`super::set_spare`].
    pub const SPARE: u16 = 0x40;
}

impl Cpu {
    const fn new() -> Self {
        Cpu {
            address: AtomicU64::new(0),
            stack_top: AtomicU64::new(0),
            index: AtomicU64::new(0),
            apic_id: AtomicU64::new(0),
            work: Work::new(),
            began: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            trap: Record::new(),
            nmis: AtomicU64::new(0),
            machine_checks: AtomicU64::new(0),
            gdt: UnsafeCell::new([0; 10]),
            tss: UnsafeCell::new([0; 26]),
            stacks: Stacks(UnsafeCell::new([[0; EXCEPTION_STACK]; EXCEPTION_STACKS])),
            eoi: EoiWord(AtomicU64::new(0)),
        }
    }

    /// The number of this CPU in the platform's list.
    pub fn index(&self) -> usize {
        self.index.load(Relaxed) as usize
    }
}

/// Returns the data of the CPU with this number.
///
/// # Panics
/// When there is none.
pub fn of(index: usize) -> &'static Cpu {
    &CPUS[index]
}

/// Returns this CPU's data.
pub fn this() -> &'static Cpu {
    let address: *const Cpu;
    // SAFETY: GS.base is the address of a static from `init` on.
    unsafe {
        asm!("mov {}, gs:[0]", out(reg) address, options(nostack, preserves_flags, readonly));
        &*address
    }
}

/// Sets GS, GDT and TSS of this CPU, which has the number `index`.
pub fn init(index: usize) {
    let cpu = of(index);
    cpu.index.store(index as u64, Relaxed);
    cpu.address.store(&raw const *cpu as u64, Relaxed);
    let tss = cpu.tss.get().cast::<u32>();
    let gdt = cpu.gdt.get().cast::<u64>();
    let base = tss as u64;
    let limit = 103;
    let descriptors = [
        0,
        0x00af_9b00_0000_ffff,
        0x00cf_9300_0000_ffff,
        0x00cf_9b00_0000_ffff,
        0x00cf_f300_0000_ffff,
        0x00af_fb00_0000_ffff,
        limit | (base & 0xff_ffff) << 16 | 0x89 << 40 | (base >> 24 & 0xff) << 56,
        base >> 32,
    ];
    let top = |stack: usize| cpu.stacks.0.get() as u64 + ((stack + 1) * EXCEPTION_STACK) as u64;
    // SAFETY: the CPU does not use them yet, or is about to load them again; nobody else writes them.
    unsafe {
        for (slot, descriptor) in descriptors.into_iter().enumerate() {
            gdt.add(slot).write_volatile(descriptor);
        }
        // RSP0, and the interrupt stack table from its first entry on.
        for (slot, address) in
            [(1, top(0))].into_iter().chain((0..EXCEPTION_STACKS).map(|n| (9 + 2 * n, top(n))))
        {
            tss.add(slot).write_volatile(address as u32);
            tss.add(slot + 1).write_volatile((address >> 32) as u32);
        }
        // No map of I/O permissions.
        tss.add(25).write_volatile(104 << 16);
    }
    load_gdt(gdt as u64, 10 * 8 - 1);
    // SAFETY: the descriptors are as written above.
    unsafe {
        asm!(
            "mov ds, {data:e}", "mov es, {data:e}", "mov ss, {data:e}", "mov fs, {data:e}", "mov gs, {data:e}",
            "push {code}", "lea {scratch}, [rip + 2f]", "push {scratch}", "retfq", "2:",
            "ltr {tss:x}",
            data = in(reg) u64::from(selector::DATA), code = in(reg) u64::from(selector::CODE), scratch = out(reg) _,
            tss = in(reg) selector::TSS,
        );
    }
    write_msr(msr::GS_BASE, &raw const *cpu as u64);
}

/// The operand of LIDT and LGDT.
#[repr(C, packed)]
struct Pointer {
    limit: u16,
    base: u64,
}

/// Loads the register of the IDT.
pub fn load_idt(base: u64, limit: u16) {
    let operand = Pointer { limit, base };
    // SAFETY: the table's gates lead to the stubs, or the caller wants what happens otherwise.
    unsafe { asm!("lidt [{}]", in(reg) &raw const operand, options(nostack, preserves_flags)) };
}

/// Loads the register of the GDT.
pub fn load_gdt(base: u64, limit: u16) {
    let operand = Pointer { limit, base };
    // SAFETY: callers name a GDT with this program's descriptors.
    unsafe { asm!("lgdt [{}]", in(reg) &raw const operand, options(nostack, preserves_flags)) };
}

/// Writes this CPU's spare descriptor, of 16 bytes.
pub fn set_spare(low: u64, high: u64) {
    let gdt = this().gdt.get().cast::<u64>();
    // SAFETY: in bounds, and nothing of this program uses it.
    unsafe {
        gdt.add(8).write_volatile(low);
        gdt.add(9).write_volatile(high);
    }
}
