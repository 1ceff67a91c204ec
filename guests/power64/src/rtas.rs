// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls of the run-time abstraction services (LoPAR, chapter 7).

use core::arch::global_asm;
use core::cell::UnsafeCell;
use core::mem::offset_of;

use crate::cpu::{self, Cpu};
use crate::hcall;
use crate::platform::platform;

/// Most arguments and results together.
const WORDS: usize = 16;

// RTAS runs in 32-bit mode and big-endian order, with interrupts and translation off (LoPAR, requirement R1-7.2.1-5), and
// keeps the registers that the ABI keeps; r1, r2 and r13 are kept here.
global_asm!(
    r#"
    .section .text.rtas, "ax"
    .global rtas_enter
    .balign 16
rtas_enter:                         // r3 = block, r4 = base, r5 = entry
    mflr    0
    std     0, 16(1)
    stdu    1, -48(1)
    std     1, {rtas_stack}(13)
    li      6, rtas_back
    mtlr    6
    mtspr   26, 5
    li      6, 0x1002               // MSR.ME and MSR.RI alone
    mtspr   27, 6
    rfid
    "#,
    rtas_stack = const offset_of!(Cpu, rtas_stack),
);

unsafe extern "C" {
    fn rtas_enter(block: u64, base: u64, entry: u64);
}

/// An argument block, all in big-endian order.
#[repr(C, align(64))]
struct Block(UnsafeCell<[u32; WORDS + 3]>);

// SAFETY: one CPU calls at a time; see `call`.
unsafe impl Sync for Block {}

static BLOCK: Block = Block(UnsafeCell::new([0; WORDS + 3]));

/// A status for a call that this machine does not have: RTAS's own for an unknown one is -3, too.
pub const UNKNOWN: i32 = -3;

/// Calls a service; returns its status and the other results. With interrupts masked, and by one CPU at a time.
pub fn call<const RESULTS: usize>(token: Option<u32>, arguments: &[u32]) -> (i32, [u32; RESULTS]) {
    let Some(token) = token else { return (UNKNOWN, [0; RESULTS]) };
    if arguments.len() + RESULTS + 1 > WORDS {
        return (UNKNOWN, [0; RESULTS]);
    }
    let block = BLOCK.0.get().cast::<u32>();
    let head = [token, arguments.len() as u32, RESULTS as u32 + 1];
    for (index, word) in head.iter().chain(arguments).enumerate() {
        // SAFETY: within the block, by the check above.
        unsafe { block.add(index).write_volatile(word.to_be()) };
    }
    raw(block as u64);
    // SAFETY: as above.
    let result =
        |index: usize| u32::from_be(unsafe { block.add(3 + arguments.len() + index).read_volatile() });
    (result(0) as i32, core::array::from_fn(|index| result(index + 1)))
}

/// Calls a service where interrupts may come, which it does not expect; returns its results unless it fails. By one CPU at a time.
pub fn ask<const RESULTS: usize>(token: Option<u32>, arguments: &[u32]) -> Option<[u32; RESULTS]> {
    let before = cpu::msr();
    cpu::mask();
    let (status, results) = call(token, arguments);
    cpu::set_msr(before);
    (status == 0).then_some(results)
}

/// Calls with an argument block that lies at this address.
pub fn raw(block: u64) {
    match platform().rtas {
        // SAFETY: the device tree names RTAS's entry; it returns to `rtas_back`.
        Some(rtas) => unsafe { rtas_enter(block, rtas.base, rtas.entry) },
        None => _ = hcall::call(hcall::RTAS, [block, 0, 0, 0]),
    }
}
