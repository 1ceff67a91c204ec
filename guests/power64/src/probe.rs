// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All general registers before and after instructions that are only known at run time.

use core::arch::global_asm;
use core::cell::UnsafeCell;

use turnstile_guests_common::random;

use crate::exception;
use crate::trap::{self, Trap};

/// R0 to R31.
pub type Registers = [u64; 32];

/// Most instructions.
pub const LONGEST: usize = 6;

#[repr(C, align(128))]
struct Block {
    registers: UnsafeCell<Registers>,
    kept: UnsafeCell<Registers>,
    link: UnsafeCell<u64>,
    condition: UnsafeCell<u64>,
}

// SAFETY: only the boot CPU uses it.
unsafe impl Sync for Block {}

static BLOCK: Block = Block {
    registers: UnsafeCell::new([0; 32]),
    kept: UnsafeCell::new([0; 32]),
    link: UnsafeCell::new(0),
    condition: UnsafeCell::new(0),
};

// SPRG0 holds the block's address; SPRG3 lends a register. Instructions that write them cannot be tried.
global_asm!(
    r#"
    .section .text.probe, "ax"
    .global probe_call, probe_return
    .balign 64
probe_call:                         // r3 = block, r4 = instructions
    mtspr   272, 3
    .irp    n, 1,2,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
    std     \n, 256 + 8 * \n(3)
    .endr
    mflr    0
    std     0, 512(3)
    mfcr    0
    std     0, 520(3)
    mtctr   4
    mr      31, 3
    bcl     20, 31, 1f
1:  mflr    4
    addi    4, 4, probe_return - 1b
    mtlr    4
    .irp    n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
    ld      \n, 8 * \n(31)
    .endr
    bctr
probe_return:
    mtspr   275, 31
    mfspr   31, 272
    .irp    n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30
    std     \n, 8 * \n(31)
    .endr
    mfspr   0, 275
    std     0, 8 * 31(31)
    mr      3, 31
    .irp    n, 1,2,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
    ld      \n, 256 + 8 * \n(3)
    .endr
    ld      0, 520(3)
    mtcr    0
    ld      0, 512(3)
    mtlr    0
    blr

    .balign 64
    .global probe_slot
probe_slot:
    .rept   8
    nop
    .endr
    "#
);

unsafe extern "C" {
    fn probe_call(block: *mut Block, code: u64);
    fn probe_return();
    fn probe_slot();
}

/// Returns where [`execute`] puts the instructions.
pub fn slot() -> u64 {
    probe_slot as *const () as u64
}

/// Executes instructions; returns the registers afterwards, or the exception. Only for the boot CPU.
///
/// # Safety
/// They change no memory of this program, and let it go on behind them.
pub unsafe fn execute(code: &[u32], input: &Registers) -> Result<Registers, Trap> {
    for (place, word) in (slot()..).step_by(4).zip(&code[..code.len().min(LONGEST)]) {
        exception::write_instruction(place, *word);
    }
    // An absolute branch back.
    let back = 0x4800_0002 | probe_return as *const () as u32;
    exception::write_instruction(slot() + 4 * code.len().min(LONGEST) as u64, back);
    // SAFETY: the caller's promise; nobody else uses the block.
    unsafe { execute_at(slot(), input) }
}

/// Executes what lies at an address, and ends with a branch to the link register; see [`execute`].
///
/// # Safety
/// As for [`execute`].
pub unsafe fn execute_at(address: u64, input: &Registers) -> Result<Registers, Trap> {
    // SAFETY: nobody else uses the block.
    unsafe { BLOCK.registers.get().write_volatile(*input) };
    let block = (&raw const BLOCK).cast_mut();
    // SAFETY: the caller's promise; what the C ABI keeps is kept.
    trap::expect(|| unsafe { probe_call(block, address) })?;
    // SAFETY: as above.
    Ok(unsafe { BLOCK.registers.get().read_volatile() })
}

/// Returns 32 different values that a careless copy (truncation, sign, neighbour) would change.
pub fn pattern(seed: u64) -> Registers {
    random::pattern(seed)
}
