// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What reports of the hypervisor's end have in common: one CPU reports, the other end of the serial line is told, and a
//! backtrace is what the stack holds. And faults on purpose, to see such a report.

use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering};

use spin::Once;

use crate::console;

/// The version of the hypervisor.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

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

/// Begins a report. If there is one already, this CPU stops by `halt`.
pub fn begin(what: &str, halt: fn() -> !) {
    if REPORTING.swap(true, Ordering::AcqRel) {
        halt();
    }
    // Ends whatever frame was being sent, so that the report is read as text (turnstile_link::RESYNC).
    console::print_last(format_args!("\0\0"));
    if let Some(announce) = ANNOUNCE.get() {
        announce(what);
    }
}

/// Ends a report: resets the machine by `reset`, and until that happens stops by `halt`.
pub fn end(reset: fn(), halt: fn() -> !) -> ! {
    console::print_last(format_args!("turnstile: resetting the machine\n"));
    console::flush_last();
    reset();
    halt()
}

/// Prints registers that are numbered, four in a line.
pub fn numbered(prefix: char, values: &[u64]) {
    for (n, value) in values.iter().enumerate() {
        let end = if n % 4 == 3 || n + 1 == values.len() { "\n" } else { "" };
        console::print_last(format_args!("  {prefix}{n:<2} {value:#018x}{end}"));
    }
}

/// Returns the part in use of a stack of `size` bytes that ends at `end`, from the stack pointer up. Nothing, if that points
/// elsewhere.
pub fn in_use(pointer: u64, end: u64, size: u64) -> Range<u64> {
    let pointer = pointer.next_multiple_of(8);
    if pointer < end && end - pointer <= size { pointer..end } else { end..end }
}

/// Prints what may be return addresses on a stack, as offsets into the image whose code is `code`.
///
/// The image keeps no frame pointers, which would cost every exit an instruction or two, so each word that
/// points behind a call instruction of the image's code is taken for one; `follows_call` looks at the instruction. A
/// stale one may be among them.
///
/// # Safety
/// `stack` is mapped and readable, its ends multiples of eight, and nobody else writes it; `follows_call` is given
/// addresses inside `code`.
pub unsafe fn backtrace(stack: Range<u64>, code: &Range<u64>, follows_call: unsafe fn(u64) -> bool) {
    console::print_last(format_args!("backtrace (offsets into the image at {:#x}):\n", code.start));
    let mut shown = 0;
    for address in stack.step_by(8) {
        // SAFETY: the caller's promise.
        let word = unsafe { core::ptr::read_volatile(address as *const u64) };
        // SAFETY: as above.
        if code.contains(&word) && word != code.start && unsafe { follows_call(word) } {
            console::print_last(format_args!("  {:#x}\n", word - code.start));
            shown += 1;
            if shown == DEPTH {
                return;
            }
        }
    }
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
    /// A read of a guest's memory, once there is a guest ([`read_guest`]).
    ReadGuest,
    /// Devices behind an IOMMU are told addresses that are not theirs.
    Stray,
    /// Services find a pool empty every second time that they need memory from there.
    Dry,
}

/// Faults on purpose, by writing to `code` or running `data`.
pub fn provoke(kind: Provoked, code: u64, data: u64) {
    console::print(format_args!("turnstile: provoking a fault: {kind:?}\n"));
    match kind {
        // SAFETY: the store is not carried out: code is mapped read-only.
        Provoked::WriteToCode => unsafe { core::ptr::write_volatile(code as *mut u32, 0) },
        Provoked::RunData => {
            // SAFETY: the call is not carried out: data is not executable.
            unsafe { core::mem::transmute::<usize, extern "C" fn()>(data as usize)() }
        }
        Provoked::StackOverflow => {
            core::hint::black_box(recurse(0));
        }
        Provoked::Panic => panic!("provoked"),
        Provoked::ReadGuest | Provoked::Stray | Provoked::Dry => {}
    }
}

/// Faults on purpose by reading the memory of a guest at this physical address, at which it would be mapped.
pub fn read_guest(address: u64) {
    // SAFETY: the load is not carried out: the hypervisor cannot read memory of guests by accident. Were it, it would be
    // read and forgotten.
    let value = unsafe { core::ptr::read_volatile(address as *const u8) };
    console::print(format_args!(
        "turnstile: the memory of a guest can be read at {address:#x}: {value:#x}\n"
    ));
}

/// Uses up the stack.
fn recurse(depth: u64) -> u64 {
    let block = core::hint::black_box([depth; 32]);
    if depth == u64::MAX { 0 } else { recurse(depth + 1) + block[depth as usize % 32] }
}
