// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The end of the hypervisor: an exception at EL2, or a panic. It is reported, then the machine is reset.

use core::sync::atomic::{AtomicBool, Ordering};

use crate::{console, cpu, psci, regs};

/// Registers stored by `hypervisor_fault` in `vectors.S`.
#[repr(C)]
pub struct FaultFrame {
    x: [u64; 31],
    sp: u64,
    kind: u64,
}

const KINDS: [&str; 4] = ["synchronous exception", "IRQ", "FIQ", "SError"];
/// Frames of a backtrace at most.
const DEPTH: usize = 24;

/// Only one CPU reports; a fault while reporting stops at once.
static REPORTING: AtomicBool = AtomicBool::new(false);

fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

fn begin() {
    if REPORTING.swap(true, Ordering::AcqRel) {
        cpu::halt();
    }
    // Ends whatever frame was being sent, so that the report is read as text (turnstile_link::RESYNC).
    console::print_last(format_args!("\0\0"));
}

fn finish() -> ! {
    console::print_last(format_args!("turnstile: resetting the machine\n"));
    psci::system_reset();
    cpu::halt();
}

fn image_base() -> u64 {
    unsafe extern "C" {
        static _start: u8;
    }
    (&raw const _start) as u64
}

/// Prints return addresses, as offsets into the image, following the chain of frame records (AAPCS64 6.4.6).
fn backtrace(mut frame: u64) {
    let base = image_base();
    let stack = cpu::this().stack_top;
    console::print_last(format_args!("backtrace (offsets into the image at {base:#x}):\n"));
    for _ in 0..DEPTH {
        // Only records on this CPU's own stack are followed: the chain of a faulting CPU may be damaged.
        if frame == 0 || !frame.is_multiple_of(8) || frame >= stack || stack - frame > 64 * 1024 {
            break;
        }
        // SAFETY: an aligned address on this CPU's mapped stack.
        let (next, link) = unsafe { (*(frame as *const u64), *((frame + 8) as *const u64)) };
        console::print_last(format_args!("  {:#x}\n", link.wrapping_sub(base)));
        if next <= frame {
            break;
        }
        frame = next;
    }
}

/// Reports an exception taken at EL2.
#[unsafe(no_mangle)]
extern "C" fn turnstile_fault(frame: &FaultFrame) -> ! {
    begin();
    let (esr, elr, far) = (regs::ESR_EL2.read(), regs::ELR_EL2.read(), regs::FAR_EL2.read());
    let kind = KINDS.get(frame.kind as usize & 3).copied().unwrap_or("exception");
    console::print_last(format_args!(
        "\nturnstile {}: {kind} in the hypervisor on CPU {}\n  ESR_EL2 {esr:#010x}  ELR_EL2 {elr:#x} \
         (image + {:#x})  FAR_EL2 {far:#x}\n  HPFAR_EL2 {:#x}  SPSR_EL2 {:#x}  SP {:#x}\n",
        version(),
        cpu::this().index,
        elr.wrapping_sub(image_base()),
        regs::HPFAR_EL2.read(),
        regs::SPSR_EL2.read(),
        frame.sp,
    ));
    for (n, value) in frame.x.iter().enumerate() {
        let end = if n % 4 == 3 || n == 30 { "\n" } else { "" };
        console::print_last(format_args!("  x{n:<2} {value:#018x}{end}"));
    }
    backtrace(frame.x[29]);
    finish();
}

/// Reports a panic of the hypervisor.
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    begin();
    let frame: u64;
    // SAFETY: reads the frame pointer.
    unsafe { core::arch::asm!("mov {}, x29", out(reg) frame, options(nomem, nostack, preserves_flags)) };
    console::print_last(format_args!(
        "\nturnstile {}: CPU {}: {info}\n  ESR_EL2 {:#x}  ELR_EL2 {:#x}  FAR_EL2 {:#x}\n",
        version(),
        cpu::this().index,
        regs::ESR_EL2.read(),
        regs::ELR_EL2.read(),
        regs::FAR_EL2.read(),
    ));
    backtrace(frame);
    finish();
}
