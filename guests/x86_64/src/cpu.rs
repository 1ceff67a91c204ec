// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The data of each CPU, and instructions (AMD APM vol. 2 and 3).

use core::arch::asm;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

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

/// Model-specific registers (AMD APM vol. 2, appendix A).
pub mod msr {
    /// Time-stamp counter.
    pub const TSC: u32 = 0x10;
    /// Address and mode of the local APIC.
    pub const APIC_BASE: u32 = 0x1b;
    /// Attributes of memory.
    pub const PAT: u32 = 0x277;
    /// When the APIC's timer fires, in ticks of the TSC.
    pub const TSC_DEADLINE: u32 = 0x6e0;
    /// The first register of the x2APIC.
    pub const X2APIC: u32 = 0x800;
    /// Extended features.
    pub const EFER: u32 = 0xc000_0080;
    /// Base of FS.
    pub const FS_BASE: u32 = 0xc000_0100;
    /// Base of GS.
    pub const GS_BASE: u32 = 0xc000_0101;
    /// What SWAPGS exchanges.
    pub const KERNEL_GS_BASE: u32 = 0xc000_0102;
}

/// Reads a model-specific register.
pub fn read_msr(number: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: changes no memory; an exception is reported, or expected by the caller.
    unsafe { asm!("rdmsr", in("ecx") number, out("eax") low, out("edx") high, options(nostack)) };
    u64::from(high) << 32 | u64::from(low)
}

/// Writes a model-specific register.
pub fn write_msr(number: u32, value: u64) {
    // SAFETY: callers write registers that this program does not depend on, or values that it can work with.
    unsafe {
        asm!("wrmsr", in("ecx") number, in("eax") value as u32, in("edx") (value >> 32) as u32, options(nostack))
    };
}

/// What CPUID answers: EAX, EBX, ECX, EDX.
pub fn cpuid(leaf: u32, subleaf: u32) -> [u32; 4] {
    let (eax, ebx, ecx, edx): (u32, u64, u32, u32);
    // SAFETY: CPUID changes its four registers only; RBX is the compiler's.
    unsafe {
        asm!("mov {b}, rbx", "cpuid", "xchg {b}, rbx", b = out(reg) ebx, inout("eax") leaf => eax,
            inout("ecx") subleaf => ecx, out("edx") edx, options(nostack));
    }
    [eax, ebx as u32, ecx, edx]
}

/// Returns this CPU's APIC identifier, as CPUID tells it.
pub fn initial_apic_id() -> u64 {
    let [most, ..] = cpuid(0, 0);
    if most >= 0xb {
        let [_, levels, _, id] = cpuid(0xb, 0);
        if levels != 0 {
            return u64::from(id);
        }
    }
    let [_, ebx, ..] = cpuid(1, 0);
    u64::from(ebx >> 24)
}

/// Says whether a bit of leaf 1's ECX is set.
pub fn has(bit: u32) -> bool {
    let [_, _, ecx, _] = cpuid(1, 0);
    ecx >> bit & 1 != 0
}

/// Bits of leaf 1's ECX.
pub mod feature {
    /// The APIC can be driven by MSRs.
    pub const X2APIC: u32 = 21;
    /// The APIC's timer can take a deadline.
    pub const TSC_DEADLINE: u32 = 24;
    /// XSAVE.
    pub const XSAVE: u32 = 26;
    /// There is a hypervisor.
    pub const HYPERVISOR: u32 = 31;
}

/// Masks interrupts.
pub fn mask() {
    // SAFETY: nothing depends on interrupts being let in.
    unsafe { asm!("cli", options(nostack)) };
}

/// Lets interrupts in.
pub fn unmask() {
    // SAFETY: handlers keep all registers.
    unsafe { asm!("sti", options(nostack)) };
}

/// Lets interrupts in and waits for one, without a gap between the two; returns with interrupts masked.
pub fn wait() {
    // SAFETY: as above.
    unsafe { asm!("sti", "hlt", "cli", options(nostack)) };
}

/// Lets pending interrupts in; returns with interrupts masked.
pub fn take_interrupts() {
    // SAFETY: as above. STI holds interrupts off for one instruction.
    unsafe { asm!("sti", "nop", "nop", "cli", options(nostack)) };
}

/// Says that this is a loop that waits.
pub fn relax() {
    core::hint::spin_loop();
}

/// Reads the time-stamp counter, after what comes before it.
pub fn tsc() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: changes two registers only.
    unsafe { asm!("lfence", "rdtsc", out("eax") low, out("edx") high, options(nostack)) };
    u64::from(high) << 32 | u64::from(low)
}

/// Returns RFLAGS.
pub fn flags() -> u64 {
    let flags;
    // SAFETY: pushes and pops.
    unsafe { asm!("pushfq", "pop {}", out(reg) flags) };
    flags
}

/// Reads a control register by its name.
#[macro_export]
macro_rules! read_control {
    ($name:literal) => {{
        let value: u64;
        // SAFETY: changes one general register only.
        unsafe { core::arch::asm!(concat!("mov {}, ", $name), out(reg) value, options(nostack)) };
        value
    }};
}

/// Writes a control register by its name, or a debug register.
#[macro_export]
macro_rules! write_control {
    ($name:literal, $value:expr) => {{
        let value: u64 = $value;
        // SAFETY: callers write values that this program can work with, or expect the exception.
        unsafe { core::arch::asm!(concat!("mov ", $name, ", {}"), in(reg) value, options(nostack)) };
    }};
}

/// Waits with interrupts masked: for an NMI.
pub fn halt_masked() {
    // SAFETY: changes nothing.
    unsafe { asm!("cli", "hlt", options(nostack)) };
}
