// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Executing an instruction that is only known at run time.

use core::arch::asm;
use core::cell::UnsafeCell;

use crate::cpu;
use crate::trap::{self, Trap};

const RET: u32 = 0xd65f_03c0;

/// MRS x0 of the register with this encoding (op0 2 or 3).
pub fn mrs(op0: u32, op1: u32, crn: u32, crm: u32, op2: u32) -> u32 {
    0xd520_0000 | system(op0, op1, crn, crm, op2)
}

/// MSR of the register with this encoding from x0; for op0 1 it is SYS.
pub fn msr(op0: u32, op1: u32, crn: u32, crm: u32, op2: u32) -> u32 {
    0xd500_0000 | system(op0, op1, crn, crm, op2)
}

fn system(op0: u32, op1: u32, crn: u32, crm: u32, op2: u32) -> u32 {
    (op0 & 3) << 19 | (op1 & 7) << 16 | (crn & 15) << 12 | (crm & 15) << 8 | (op2 & 7) << 5
}

/// Most instructions that can be prepared together.
pub const BATCH: usize = 512;

#[repr(C, align(64))]
struct Stubs(UnsafeCell<[u32; 2 * BATCH]>);

// SAFETY: only the boot CPU patches and executes them.
unsafe impl Sync for Stubs {}

static STUBS: Stubs = Stubs(UnsafeCell::new([RET; 2 * BATCH]));

/// Prepares up to [`BATCH`] instructions for [`run`]; one synchronization serves them all. Only for the boot
/// CPU.
pub fn prepare(words: impl Iterator<Item = u32>) {
    let stubs = STUBS.0.get().cast::<u32>();
    let mut count = 0;
    for (index, word) in words.take(BATCH).enumerate() {
        // SAFETY: in bounds; nobody else uses the stubs.
        unsafe {
            stubs.add(2 * index).write_volatile(word);
            stubs.add(2 * index + 1).write_volatile(RET);
        }
        count = index as u64 + 1;
    }
    cpu::synchronize_instructions(stubs as u64, 8 * count);
}

/// Executes a prepared instruction with the given x0 and returns x0 afterwards, and the exception if it
/// raised one (x0 is then as it was). Only for the boot CPU.
///
/// # Safety
/// The instruction changes no memory of this program and no register but x0 to x18, NZCV and the system
/// registers that the program does not depend on, and lets the program go on at the next instruction.
pub unsafe fn run(index: usize, x0: u64) -> (u64, Option<Trap>) {
    let stub = STUBS.0.get().cast::<u32>().wrapping_add(2 * (index % BATCH));
    trap::expect(|| {
        let mut value = x0;
        // SAFETY: the caller's promise; a trap skips the word and goes on with RET.
        unsafe { asm!("blr {}", in(reg) stub, inout("x0") value, clobber_abi("C")) };
        value
    })
}

/// Prepares and executes one instruction.
///
/// # Safety
/// As for [`run`].
pub unsafe fn execute(word: u32, x0: u64) -> (u64, Option<Trap>) {
    prepare(core::iter::once(word));
    // SAFETY: the caller's promise.
    unsafe { run(0, x0) }
}

/// Reads a system register by its encoding.
pub fn read(op0: u32, op1: u32, crn: u32, crm: u32, op2: u32) -> Result<u64, Trap> {
    // SAFETY: MRS changes x0 only.
    match unsafe { execute(mrs(op0, op1, crn, crm, op2), 0) } {
        (value, None) => Ok(value),
        (_, Some(trap)) => Err(trap),
    }
}
