// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The end of the hypervisor: an exception at EL2, or a panic. It is reported, then the machine is reset.

pub use turnstile_arch_common::report::{Provoked, read_guest, set_announcement};
use turnstile_arch_common::{console, report};

use crate::board::power;
use crate::cpu::{self, regs};
use crate::memory::host::stack_size;

/// Registers stored by `hypervisor_fault` in `vectors.S`.
#[repr(C)]
pub struct FaultFrame {
    x: [u64; 31],
    sp: u64,
    kind: u64,
}

const KINDS: [&str; 4] = ["synchronous exception", "IRQ", "FIQ", "SError"];

/// Faults on purpose.
pub fn provoke(kind: Provoked) {
    static DATA: [u32; 2] = [0xd65f_03c0; 2]; // RET: were constants executable, it would return.
    report::provoke(kind, image_base(), (&raw const DATA) as u64);
}

/// Returns where the readable part of the stack begins: a stack that overflowed points into its guard page.
fn stack_from(sp: u64) -> u64 {
    let top = cpu::this().stack_top;
    if regs::FAR_EL2.read() & !0xfff == sp & !0xfff { (sp | 0xfff) + 1 } else { sp }.min(top)
}

fn image_base() -> u64 {
    unsafe extern "C" {
        static _start: u8;
    }
    (&raw const _start) as u64
}

/// Says whether the instruction before an address in the image's code is a call.
///
/// # Safety
/// `address` is inside the image's code, behind its first instruction.
unsafe fn follows_call(address: u64) -> bool {
    if !address.is_multiple_of(4) {
        return false;
    }
    // SAFETY: inside the image's code, which is readable.
    let call = unsafe { core::ptr::read_volatile((address - 4) as *const u32) };
    // BL, or BLR (Arm ARM C4.1.66).
    call >> 26 == 0b10_0101 || call & 0xffff_fc1f == 0xd63f_0000
}

/// Prints what may be return addresses on this CPU's stack from `sp` up.
fn backtrace(sp: u64) {
    unsafe extern "C" {
        static __rodata_start: u8;
    }
    let code = image_base()..(&raw const __rodata_start) as u64;
    let stack = report::in_use(sp, cpu::this().stack_top, stack_size(cpu::this().index));
    // SAFETY: between a stack pointer and the top of the same mapped stack; the guard page is below both.
    unsafe { report::backtrace(stack, &code, follows_call) };
}

/// Reports an exception taken at EL2.
#[unsafe(no_mangle)]
extern "C" fn turnstile_fault(frame: &FaultFrame) -> ! {
    let kind = KINDS.get(frame.kind as usize & 3).copied().unwrap_or("exception");
    report::begin(kind, cpu::halt);
    let (esr, elr, far) = (regs::ESR_EL2.read(), regs::ELR_EL2.read(), regs::FAR_EL2.read());
    console::print_last(format_args!(
        "\nturnstile {}: {kind} in the hypervisor on CPU {}\n  ESR_EL2 {esr:#010x}  ELR_EL2 {elr:#x} \
         (image + {:#x})  FAR_EL2 {far:#x}\n  HPFAR_EL2 {:#x}  SPSR_EL2 {:#x}  SP {:#x}\n",
        report::VERSION,
        cpu::this().index,
        elr.wrapping_sub(image_base()),
        regs::HPFAR_EL2.read(),
        regs::SPSR_EL2.read(),
        frame.sp,
    ));
    report::numbered('x', &frame.x);
    console::print_last(format_args!("  LR image + {:#x}\n", frame.x[30].wrapping_sub(image_base())));
    backtrace(stack_from(frame.sp));
    report::end(power::reset, cpu::halt)
}

/// Reports a panic of the hypervisor.
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    report::begin("panic", cpu::halt);
    let here = 0u8;
    console::print_last(format_args!(
        "\nturnstile {}: CPU {}: {info}\n  ESR_EL2 {:#x}  ELR_EL2 {:#x}  FAR_EL2 {:#x}\n",
        report::VERSION,
        cpu::this().index,
        regs::ESR_EL2.read(),
        regs::ELR_EL2.read(),
        regs::FAR_EL2.read(),
    ));
    backtrace(&raw const here as u64);
    report::end(power::reset, cpu::halt)
}
