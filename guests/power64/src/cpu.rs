// SPDX-License-Identifier: Apache-2.0 OR MIT
//! This CPU: its record, its special registers, its mask of interrupts.

use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use turnstile_guests_common::handler::Work;
use turnstile_guests_common::stack::Stack;
use turnstile_guests_common::trap::Record;

use crate::hcall;

/// Most CPUs a guest can use.
pub const MAX_CPUS: usize = 32;

/// Bits of the machine state register (Power ISA 3.0B Book III, section 3.2.1).
pub mod msr {
    /// 64-bit mode.
    pub const SF: u64 = 1 << 63;
    /// Hypervisor state.
    pub const HV: u64 = 1 << 60;
    /// Vector registers usable.
    pub const VEC: u64 = 1 << 25;
    /// Vector-scalar registers usable.
    pub const VSX: u64 = 1 << 23;
    /// External interrupts, decrementer, doorbells.
    pub const EE: u64 = 1 << 15;
    /// Problem state.
    pub const PR: u64 = 1 << 14;
    /// Floating point usable.
    pub const FP: u64 = 1 << 13;
    /// Machine checks.
    pub const ME: u64 = 1 << 12;
    /// Single step.
    pub const SE: u64 = 1 << 10;
    /// Branch trace.
    pub const BE: u64 = 1 << 9;
    /// Instruction address translation.
    pub const IR: u64 = 1 << 5;
    /// Data address translation.
    pub const DR: u64 = 1 << 4;
    /// Interrupts are recoverable.
    pub const RI: u64 = 1 << 1;
    /// Little-endian.
    pub const LE: u64 = 1;
    /// What this program runs with, interrupts masked.
    pub const USUAL: u64 = SF | ME | RI | LE;
}

/// Numbers of special-purpose registers.
pub mod spr {
    /// Data storage interrupt status.
    pub const DSISR: u32 = 18;
    /// Data address.
    pub const DAR: u32 = 19;
    /// Decrementer.
    pub const DEC: u32 = 22;
    /// Save/restore 0.
    pub const SRR0: u32 = 26;
    /// Save/restore 1.
    pub const SRR1: u32 = 27;
    /// Process identifier.
    pub const PIDR: u32 = 48;
    /// Facility status and control.
    pub const FSCR: u32 = 153;
    /// Timebase.
    pub const TB: u32 = 268;
    /// SPRG0.
    pub const SPRG0: u32 = 272;
    /// Processor version.
    pub const PVR: u32 = 287;
}

/// Reads a special-purpose register, whose number is an expression known at compile time.
#[macro_export]
macro_rules! mfspr {
    ($number:expr) => {{
        let value: u64;
        // SAFETY: reading changes nothing that this program relies on.
        unsafe { core::arch::asm!("mfspr {}, {}", out(reg) value, const $number, options(nostack)) };
        value
    }};
}

/// Writes a special-purpose register.
#[macro_export]
macro_rules! mtspr {
    ($number:expr, $value:expr) => {{
        let value: u64 = $value;
        // SAFETY: callers write registers that this program does not rely on, or what they set up for it.
        unsafe { core::arch::asm!("mtspr {}, {}", const $number, in(reg) value, options(nostack)) }
    }};
}

/// What belongs to one CPU. SPRG1 and r13 hold its address.
#[repr(C, align(64))]
pub struct Cpu {
    /// For the entry of exceptions.
    pub scratch: [AtomicU64; 4],
    /// Where exceptions put their frames.
    pub exception_stack: AtomicU64,
    /// The stack pointer that the CPU begins with.
    pub stack_top: AtomicU64,
    /// The stack pointer while RTAS runs.
    pub rtas_stack: AtomicU64,
    /// Its number here: 0 is the boot CPU.
    pub index: AtomicU64,
    /// Its interrupt server number.
    pub server: AtomicU64,
    /// What it is to do.
    pub work: Work,
    /// Whether it was started in big-endian order: 0 or 1.
    pub big_endian: AtomicU64,
    /// How often it has begun its work, and ended it.
    pub began: AtomicU64,
    /// See `began`.
    pub ended: AtomicU64,
    /// The exception that is expected.
    pub trap: Record,
    /// Where its next entry in the queue of XIVE is: index, and the generation bit expected.
    pub queue: [AtomicU64; 2],
    /// System resets and machine checks that came.
    pub resets: AtomicU64,
    /// See `resets`.
    pub machine_checks: AtomicU64,
    /// The timebase that the timer is set to.
    pub due: AtomicU64,
}

impl Cpu {
    const fn new() -> Self {
        Cpu {
            scratch: [const { AtomicU64::new(0) }; 4],
            exception_stack: AtomicU64::new(0),
            stack_top: AtomicU64::new(0),
            rtas_stack: AtomicU64::new(0),
            index: AtomicU64::new(0),
            server: AtomicU64::new(0),
            work: Work::new(),
            big_endian: AtomicU64::new(0),
            began: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            trap: Record::new(),
            queue: [const { AtomicU64::new(0) }; 2],
            resets: AtomicU64::new(0),
            machine_checks: AtomicU64::new(0),
            due: AtomicU64::new(0),
        }
    }

    /// Its number, below [`MAX_CPUS`].
    pub fn index(&self) -> usize {
        self.index.load(Relaxed) as usize % MAX_CPUS
    }
}

static CPUS: [Cpu; MAX_CPUS] = [const { Cpu::new() }; MAX_CPUS];

/// Returns the record of the CPU with this number.
pub fn of(index: usize) -> &'static Cpu {
    &CPUS[index % MAX_CPUS]
}

/// Returns the record of this CPU.
pub fn this() -> &'static Cpu {
    let address: u64;
    // SAFETY: `init` has put the address of a record into the register; nothing else writes it.
    unsafe {
        asm!("mr {}, 13", out(reg) address, options(nomem, nostack, preserves_flags));
        &*(address as *const Cpu)
    }
}

const EXCEPTION_STACK: usize = 16 << 10;

static STACKS: [Stack<EXCEPTION_STACK>; MAX_CPUS] = [const { Stack::new() }; MAX_CPUS];

/// Makes the record of this number the one of the CPU that runs this.
pub fn init(index: usize) {
    let cpu = of(index);
    cpu.index.store(index as u64, Relaxed);
    cpu.exception_stack.store(STACKS[index % MAX_CPUS].top() - 1024, Relaxed);
    cpu.trap.clear();
    // SAFETY: r13 is reserved by the ABI and used for this alone.
    unsafe { asm!("mr 13, {0}", "mtspr 273, {0}", in(reg) cpu as *const Cpu as u64, options(nostack)) };
    // No decrementer interrupt is due for a while.
    mtspr!(spr::DEC, 0x7fff_ffff);
}

/// Returns the machine state register.
pub fn msr() -> u64 {
    let value;
    // SAFETY: reads only.
    unsafe { asm!("mfmsr {}", out(reg) value, options(nomem, nostack)) };
    value
}

/// Writes the machine state register, but for HV, ME and LE, which this instruction does not change.
pub fn set_msr(value: u64) {
    // SAFETY: callers keep 64-bit mode, and translation as it is.
    unsafe { asm!("mtmsrd {}", in(reg) value, options(nostack)) };
}

/// Masks interrupts.
pub fn mask() {
    // SAFETY: changes EE and RI only (L=1).
    unsafe { asm!("mtmsrd {}, 1", in(reg) msr::RI, options(nostack)) };
}

/// Lets interrupts in.
pub fn unmask() {
    // SAFETY: as above.
    unsafe { asm!("mtmsrd {}, 1", in(reg) msr::EE | msr::RI, options(nostack)) };
}

/// Lets in what is pending, and masks again.
pub fn take_interrupts() {
    unmask();
    // A few instructions for whoever injects what has just been made possible; a hint would give the CPU away, which an
    // emulator takes for a long time.
    // SAFETY: does nothing.
    unsafe { asm!("nop", "nop", "nop", "nop", options(nomem, nostack, preserves_flags)) };
    mask();
}

/// Waits for an interrupt, takes it, and returns with interrupts masked. One that is pending already ends the wait at once.
pub fn wait() {
    hcall::call(hcall::CEDE, [0; 4]);
    mask();
}

/// Rests for a moment in a loop that waits: with lower priority, for so many instructions that what the loop looks at costs
/// little beside them. An emulator leaves its generated code for each change of priority, and for each look at the timebase.
pub fn relax() {
    const ROUNDS: u64 = 100;
    // SAFETY: lowers and restores this thread's priority, and counts down in between.
    unsafe {
        asm!(
            "mtctr {}", "or 1, 1, 1", "1: bdnz 1b", "or 2, 2, 2", in(reg) ROUNDS, out("ctr") _,
            options(nomem, nostack)
        );
    }
}
