// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whole work in a Linux guest: does one kind of operation as often as it is told, `work KIND COUNT`, and ends with status 0.
//! Without arguments it ends at once: it is also the program that `fork-exec` runs.
//!
//! A static program without a C library, so that nothing is measured but Linux: it makes its system calls itself (`sys/`).

#![no_std]
#![no_main]

mod disk;
mod kinds;
mod network;
mod sys;

use core::ffi::{CStr, c_char};
use core::panic::PanicInfo;

/// What the kernel is given back for a wrong command line.
const USAGE: i32 = 2;
/// For work that did not do what it should.
const FAILED: i32 = 1;

/// Where the kernel enters the program, on the stack that it has made. The entry of each architecture (`sys/`) calls it.
///
/// # Safety
/// `stack` points to the number of arguments and, behind it, the arguments, as Linux lays them out for a new program.
#[unsafe(no_mangle)]
unsafe extern "C" fn work_start(stack: *const usize) -> ! {
    // SAFETY: the caller's promise.
    let count = unsafe { *stack };
    let argument = |index: usize| {
        // SAFETY: the caller's promise; there are `count` pointers to strings.
        (index < count).then(|| unsafe { CStr::from_ptr(*stack.add(1 + index).cast::<*const c_char>()) })
    };
    let (Some(program), Some(kind), Some(times)) = (argument(0), argument(1), argument(2)) else {
        sys::exit(if count <= 1 { 0 } else { USAGE });
    };
    let Some(times) = number(times.to_bytes()) else { sys::exit(USAGE) };
    sys::exit(match kinds::work(program, kind.to_bytes(), times) {
        Some(Ok(())) => 0,
        Some(Err(_)) => FAILED,
        None => USAGE,
    })
}

/// A decimal number; zeros in front are none of its digits.
fn number(text: &[u8]) -> Option<u64> {
    let add = |number: u64, digit: &u8| match digit {
        b'0'..=b'9' => number.checked_mul(10)?.checked_add(u64::from(digit - b'0')),
        _ => None,
    };
    if text.is_empty() { None } else { text.iter().try_fold(0, add) }
}

#[panic_handler]
fn panicked(_: &PanicInfo<'_>) -> ! {
    sys::exit(FAILED)
}
