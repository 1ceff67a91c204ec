// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The end of the hypervisor: an exception at EL2, or a panic. It is reported, then the machine is reset.

use core::sync::atomic::{AtomicBool, Ordering};

use spin::Once;

use crate::{console, cpu, power, println, regs};

/// Registers stored by `hypervisor_fault` in `vectors.S`.
#[repr(C)]
pub struct FaultFrame {
    x: [u64; 31],
    sp: u64,
    kind: u64,
}

const KINDS: [&str; 4] = ["synchronous exception", "IRQ", "FIQ", "SError"];
/// The largest stack that is looked at, in bytes.
const MAX_STACK: u64 = 32 * 1024;
/// Addresses of a backtrace at most.
const DEPTH: usize = 24;

/// Tells the other end of the serial line of a fault, in a line, before the report follows as text.
static ANNOUNCE: Once<fn(&str)> = Once::new();

/// Has `announce` called with a line about a fault of the hypervisor. It must not lock or panic.
pub fn set_announcement(announce: fn(&str)) {
    ANNOUNCE.call_once(|| announce);
}

/// Only one CPU reports; a fault while reporting stops at once.
static REPORTING: AtomicBool = AtomicBool::new(false);

fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

fn begin(what: &str) {
    if REPORTING.swap(true, Ordering::AcqRel) {
        cpu::halt();
    }
    // Ends whatever frame was being sent, so that the report is read as text (turnstile_link::RESYNC).
    console::print_last(format_args!("\0\0"));
    if let Some(announce) = ANNOUNCE.get() {
        announce(what);
    }
}

fn finish() -> ! {
    console::print_last(format_args!("turnstile: resetting the machine\n"));
    console::flush_last();
    power::reset();
    cpu::halt();
}

/// A fault that can be provoked, to see its report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provoked {
    /// A write to the hypervisor's own code.
    WriteToCode,
    /// An instruction fetch from data.
    RunData,
    /// A stack that grows into its guard page.
    StackOverflow,
    /// A panic.
    Panic,
}

/// Faults on purpose.
pub fn provoke(kind: Provoked) {
    println!("turnstile: provoking a fault: {kind:?}");
    match kind {
        // SAFETY: the store is not carried out: code is mapped read-only.
        Provoked::WriteToCode => unsafe { core::ptr::write_volatile(image_base() as *mut u32, 0) },
        Provoked::RunData => {
            static DATA: [u32; 2] = [0xd65f_03c0; 2]; // RET
            let address = (&raw const DATA) as usize;
            // SAFETY: the call is not carried out: constants are not executable. Were they, it would return.
            unsafe { core::mem::transmute::<usize, extern "C" fn()>(address)() }
        }
        Provoked::StackOverflow => {
            core::hint::black_box(recurse(0));
        }
        Provoked::Panic => panic!("provoked"),
    }
}

/// Uses up the stack.
fn recurse(depth: u64) -> u64 {
    let block = core::hint::black_box([depth; 32]);
    if depth == u64::MAX { 0 } else { recurse(depth + 1) + block[depth as usize % 32] }
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

/// Prints what may be return addresses on this CPU's stack from `sp` up, as offsets into the image.
///
/// The image keeps no frame pointers, which would cost every exit an instruction or two, so each word that
/// points behind a call instruction of the image's code is taken for one. A stale one may be among them.
fn backtrace(sp: u64) {
    unsafe extern "C" {
        static __rodata_start: u8;
    }
    let base = image_base();
    let code = base..(&raw const __rodata_start) as u64;
    let top = cpu::this().stack_top;
    console::print_last(format_args!("backtrace (offsets into the image at {base:#x}):\n"));
    if sp >= top || top - sp > MAX_STACK {
        return;
    }
    let mut shown = 0;
    for address in (sp.next_multiple_of(8)..top).step_by(8) {
        // SAFETY: between a stack pointer and the top of the same mapped stack; the guard page is below both.
        let word = unsafe { core::ptr::read_volatile(address as *const u64) };
        if !code.contains(&word) || !word.is_multiple_of(4) || word == base {
            continue;
        }
        // SAFETY: inside the image's code, which is readable.
        let call = unsafe { core::ptr::read_volatile((word - 4) as *const u32) };
        // BL, or BLR (Arm ARM C4.1.66).
        if call >> 26 == 0b10_0101 || call & 0xffff_fc1f == 0xd63f_0000 {
            console::print_last(format_args!("  {:#x}\n", word - base));
            shown += 1;
            if shown == DEPTH {
                return;
            }
        }
    }
}

/// Reports an exception taken at EL2.
#[unsafe(no_mangle)]
extern "C" fn turnstile_fault(frame: &FaultFrame) -> ! {
    let kind = KINDS.get(frame.kind as usize & 3).copied().unwrap_or("exception");
    begin(kind);
    let (esr, elr, far) = (regs::ESR_EL2.read(), regs::ELR_EL2.read(), regs::FAR_EL2.read());
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
    console::print_last(format_args!("  LR image + {:#x}\n", frame.x[30].wrapping_sub(image_base())));
    backtrace(stack_from(frame.sp));
    finish();
}

/// Reports a panic of the hypervisor.
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    begin("panic");
    let here = 0u8;
    console::print_last(format_args!(
        "\nturnstile {}: CPU {}: {info}\n  ESR_EL2 {:#x}  ELR_EL2 {:#x}  FAR_EL2 {:#x}\n",
        version(),
        cpu::this().index,
        regs::ESR_EL2.read(),
        regs::ELR_EL2.read(),
        regs::FAR_EL2.read(),
    ));
    backtrace(&raw const here as u64);
    finish();
}
