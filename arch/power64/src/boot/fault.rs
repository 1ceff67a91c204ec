// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The end of the hypervisor: an interrupt in hypervisor state that it does not expect, or a panic. It is reported, then the
//! machine is reset.

pub use turnstile_arch_common::report::{Provoked, read_guest, set_announcement};
use turnstile_arch_common::{console, report};

use crate::board::power;
use crate::cpu;
use crate::cpu::regs::{self, msr};
use crate::cpu::report::Report;

/// The largest stack that is looked at, in bytes.
const MAX_STACK: u64 = crate::memory::STACK_BLOCK;

unsafe extern "C" {
    static turnstile_vectors: u8;
    static turnstile_vectors_end: u8;
    static _start: u8;
    static __rodata_start: u8;
}

/// Copies the vectors to where interrupts begin. Once, on the boot CPU.
pub(crate) fn install() {
    let (start, end) = (&raw const turnstile_vectors as u64, &raw const turnstile_vectors_end as u64);
    // The first vector is at 100h; what is below is the firmware's.
    const FIRST: u64 = 0x100;
    // SAFETY: real memory that the operating system has for its vectors; no interrupt is taken meanwhile.
    unsafe {
        let source = (start + FIRST) as *const u8;
        core::ptr::copy_nonoverlapping(source, FIRST as *mut u8, (end - start - FIRST) as usize);
    }
    cpu::synchronize_code();
}

/// Faults on purpose, where that is possible: in real mode nothing protects the hypervisor from itself.
pub fn provoke(kind: Provoked) {
    /// No instruction.
    static DATA: u32 = 0;
    match kind {
        Provoked::Panic | Provoked::RunData => report::provoke(kind, image_base(), (&raw const DATA) as u64),
        // It is what devices do later.
        Provoked::Stray | Provoked::Dry => {}
        Provoked::WriteToCode | Provoked::StackOverflow | Provoked::ReadGuest => {
            console::print(format_args!(
                "turnstile: {kind:?} is no fault here: the hypervisor runs in real mode, where nothing protects it from itself\n"
            ))
        }
    }
}

fn image_base() -> u64 {
    (&raw const _start) as u64
}

/// What a vector is for (Power ISA 3.0B Book III, 6.5).
fn name(vector: u64) -> &'static str {
    match vector {
        0x100 => "system reset",
        0x200 => "machine check",
        0x300 => "data storage interrupt",
        0x400 => "instruction storage interrupt",
        0x600 => "alignment interrupt",
        0x700 => "program interrupt",
        0xc00 => "system call",
        0xe40 => "hypervisor emulation assistance interrupt",
        0xe60 => "hypervisor maintenance interrupt",
        _ => "interrupt",
    }
}

/// Says whether a vector leaves its state in HSRR0 and HSRR1, whatever the report has.
fn is_hypervisors(vector: u64) -> bool {
    matches!(vector, 0x980 | 0xe00..0xf00 | 0xf80)
}

/// Says whether the instruction before an address in the image's code is a call.
///
/// # Safety
/// `address` is inside the image's code, behind its first instruction.
unsafe fn follows_call(address: u64) -> bool {
    if !address.is_multiple_of(4) {
        return false;
    }
    // SAFETY: inside the image's code.
    let call = unsafe { core::ptr::read_volatile((address - 4) as *const u32) };
    // BL, or BCTRL (Power ISA 3.0B Book I, 2.4).
    call & 0xfc00_0003 == 0x4800_0001 || call == 0x4e80_0421
}

/// Prints what may be return addresses on this CPU's stack from `sp` up.
fn backtrace(sp: u64) {
    let code = image_base()..(&raw const __rodata_start) as u64;
    let stack = report::in_use(sp, cpu::this().stack_end, MAX_STACK);
    // SAFETY: between a stack pointer and the top of the same stack.
    unsafe { report::backtrace(stack, &code, follows_call) };
}

/// Reports an interrupt that was taken in hypervisor state.
#[unsafe(no_mangle)]
pub extern "C" fn turnstile_fault(found: &Report, vector: u64) -> ! {
    let kind = name(vector);
    report::begin(kind, cpu::halt);
    let (pc, state) = match is_hypervisors(vector) {
        true => (regs::HSRR0.read(), regs::HSRR1.read()),
        false => (found.pc, found.msr),
    };
    let whose = if state & msr::HV != 0 { "in the hypervisor" } else { "in a guest" };
    console::print_last(format_args!(
        "\nturnstile {}: {kind} ({vector:#x}) {whose} on CPU {}\n  at {:#x} (image + {:#x})  MSR {:#x}\n  \
         DAR {:#x}  DSISR {:#x}  HDAR {:#x}  HDSISR {:#x}  HEIR {:#x}  LPCR {:#x}\n",
        report::VERSION,
        cpu::this().index,
        pc,
        pc.wrapping_sub(image_base()),
        state,
        found.dar,
        found.dsisr,
        regs::HDAR.read(),
        regs::HDSISR.read(),
        regs::HEIR.read(),
        regs::LPCR.read(),
    ));
    report::numbered('r', &found.gpr);
    console::print_last(format_args!(
        "  LR image + {:#x}  CTR {:#x}  CR {:#x}  XER {:#x}\n",
        found.lr.wrapping_sub(image_base()),
        found.ctr,
        found.cr,
        found.xer,
    ));
    backtrace(found.gpr[1]);
    report::end(power::reset, cpu::halt)
}

/// Reports a panic of the hypervisor.
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    report::begin("panic", cpu::halt);
    let here = 0u8;
    console::print_last(format_args!("\nturnstile {}: CPU {}: {info}\n", report::VERSION, cpu::this().index));
    backtrace(&raw const here as u64);
    report::end(power::reset, cpu::halt)
}
