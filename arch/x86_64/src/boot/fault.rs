// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The end of the hypervisor: an exception in it, a machine check, a non-maskable interrupt, or a panic. It is reported,
//! then the machine is reset.

use turnstile_arch_common::report;
pub use turnstile_arch_common::report::{Provoked, read_guest, set_announcement};

use crate::board::power;
use crate::cpu;
use crate::cpu::regs::{CR0, CR2, CR3, CR4, EFER, MCG_CAP, MCG_STATUS};
use crate::cpu::{STACK_BLOCK, STACK_TAIL};
use turnstile_arch_common::console;

/// Registers stored by `exception_common` in `interrupts.S`, and by the CPU.
#[repr(C)]
pub struct FaultFrame {
    registers: [u64; 15],
    vector: u64,
    error: u64,
    rip: u64,
    cs: u64,
    rflags: u64,
    rsp: u64,
    ss: u64,
}

const NAMES: [&str; 15] =
    ["rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"];
const NMI: u64 = 2;
const DOUBLE_FAULT: u64 = 8;
const PAGE_FAULT: u64 = 14;
const MACHINE_CHECK: u64 = 18;

/// What an exception is called (APM vol. 2, table 8-1).
fn name(vector: u64) -> &'static str {
    match vector {
        0 => "divide error (#DE)",
        1 => "debug exception (#DB)",
        NMI => "non-maskable interrupt",
        3 => "breakpoint (#BP)",
        6 => "invalid opcode (#UD)",
        7 => "device not available (#NM)",
        DOUBLE_FAULT => "double fault (#DF)",
        10 => "invalid TSS (#TS)",
        11 => "segment not present (#NP)",
        12 => "stack fault (#SS)",
        13 => "general protection fault (#GP)",
        PAGE_FAULT => "page fault (#PF)",
        MACHINE_CHECK => "machine check (#MC)",
        30 => "security exception (#SX)",
        _ => "exception",
    }
}

unsafe extern "C" {
    static __text_start: u8;
    static __rodata_start: u8;
}

fn image_base() -> u64 {
    (&raw const __text_start) as u64
}

/// Faults on purpose.
pub fn provoke(kind: Provoked) {
    static DATA: [u8; 2] = [0xc3; 2]; // RET: were constants executable, it would return.
    report::provoke(kind, image_base(), (&raw const DATA) as u64);
}

/// Says whether the instruction before an address in the image's code is a call.
///
/// # Safety
/// `address` is inside the image's code, behind its first instruction.
unsafe fn follows_call(address: u64) -> bool {
    // SAFETY: inside the image's code, which is readable, and which begins with a header.
    let before = |bytes: u64| unsafe { core::ptr::read_volatile((address - bytes) as *const u8) };
    // CALL rel32; CALL of a register or of memory: FF /2, without or with a displacement (APM vol. 3, CALL).
    let indirect = |length: u64| before(length) == 0xff && before(length - 1) >> 3 & 7 == 2;
    before(5) == 0xe8 || [2, 3, 6, 7].into_iter().any(indirect)
}

/// Prints what may be return addresses on the stack of `rsp` from there up; an overflowed one from its first mapped word.
fn backtrace(rsp: u64) {
    const PAGE: u64 = 4096;
    let block = rsp & !(STACK_BLOCK - 1);
    // A full stack points to the end of its guard page, or to the end of its block's lower neighbour.
    let (from, end) = if rsp.is_multiple_of(STACK_BLOCK) {
        (block + PAGE, block + STACK_BLOCK)
    } else {
        (rsp.next_multiple_of(8).max(block + PAGE), block + STACK_BLOCK)
    };
    let this = cpu::this();
    let known = [this.stack_end, this.fault_stack_end].contains(&end) || super::start::is_boot_stack(end);
    let stack = if known { from..end - STACK_TAIL } else { from..from };
    let code = image_base()..(&raw const __rodata_start) as u64;
    // SAFETY: between a stack pointer and the end of a mapped stack of this CPU, the guard page left out.
    unsafe { report::backtrace(stack, &code, follows_call) };
}

/// Reports an exception in the hypervisor.
#[unsafe(no_mangle)]
extern "C" fn turnstile_fault(frame: &FaultFrame) -> ! {
    let what = name(frame.vector);
    report::begin(what, cpu::halt);
    console::print_last(format_args!(
        "\nturnstile {}: {what} in the hypervisor on CPU {}\n  error {:#x}  RIP {:#x} (image + {:#x})  CR2 {:#x}\n  \
         RFLAGS {:#x}  CS {:#x}  RSP {:#x}  SS {:#x}\n  CR0 {:#x}  CR3 {:#x}  CR4 {:#x}  EFER {:#x}\n",
        report::VERSION,
        cpu::this().index,
        frame.error,
        frame.rip,
        frame.rip.wrapping_sub(image_base()),
        CR2.read(),
        frame.rflags,
        frame.cs,
        frame.rsp,
        frame.ss,
        CR0.read(),
        CR3.read(),
        CR4.read(),
        EFER.read(),
    ));
    for (n, (name, value)) in NAMES.iter().zip(frame.registers).enumerate() {
        let end = if n % 4 == 3 || n == NAMES.len() - 1 { "\n" } else { "" };
        console::print_last(format_args!("  {name:<3} {value:#018x}{end}"));
    }
    if frame.vector == MACHINE_CHECK {
        machine_check();
    }
    backtrace(frame.rsp);
    report::end(power::reset, cpu::halt)
}

/// Prints what the banks say of a machine check (APM vol. 2, 9.3.2).
fn machine_check() {
    const FIRST_STATUS: u32 = 0x401;
    const VALID: u64 = 1 << 63;
    console::print_last(format_args!("  MCG_STATUS {:#x}\n", MCG_STATUS.read()));
    for bank in 0..MCG_CAP.read() as u32 & 0xff {
        // SAFETY: MCG_CAP counts the banks, each of four registers.
        let read = |register| unsafe { crate::cpu::regs::read_msr(FIRST_STATUS + 4 * bank + register) };
        let status = read(0);
        if status & VALID != 0 {
            let (address, misc) = (read(1), read(2));
            console::print_last(format_args!(
                "  bank {bank}: STATUS {status:#x}  ADDR {address:#x}  MISC {misc:#x}\n"
            ));
        }
    }
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
