// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All general registers and flags before and after one instruction that is only known at run time.

use core::arch::global_asm;
use core::cell::UnsafeCell;

use turnstile_guests_common::random;

use crate::trap::{self, Trap};

/// RAX, RBX, RCX, RDX, RSI, RDI, RBP, R8 to R15.
pub type Registers = [u64; 15];

/// Places in [`Registers`].
pub mod place {
    /// RAX.
    pub const RAX: usize = 0;
    /// RBX.
    pub const RBX: usize = 1;
    /// RCX.
    pub const RCX: usize = 2;
    /// RDX.
    pub const RDX: usize = 3;
    /// RSI.
    pub const RSI: usize = 4;
    /// RDI.
    pub const RDI: usize = 5;
}

/// Longest code.
pub const LONGEST: usize = 32;

#[repr(C, align(64))]
struct Block {
    input: UnsafeCell<Registers>,
    flags_in: UnsafeCell<u64>,
    output: UnsafeCell<Registers>,
    flags_out: UnsafeCell<u64>,
    stack: UnsafeCell<u64>,
    start: UnsafeCell<u64>,
    code: UnsafeCell<[u8; 64]>,
}

// SAFETY: only the boot CPU uses it.
unsafe impl Sync for Block {}

static BLOCK: Block = Block {
    input: UnsafeCell::new([0; 15]),
    flags_in: UnsafeCell::new(0),
    output: UnsafeCell::new([0; 15]),
    flags_out: UnsafeCell::new(0),
    stack: UnsafeCell::new(0),
    start: UnsafeCell::new(0),
    code: UnsafeCell::new([0; 64]),
};

// The block's address fits into 32 bits, so that no register is needed to reach it.
global_asm!(
    r#"
    .section .text.probe, "ax"
    .global probe_call, probe_return
probe_call:
    push    rbx
    push    rbp
    push    r12
    push    r13
    push    r14
    push    r15
    mov     [{block} + 256], rsp
    push    qword ptr [{block} + 120]
    popfq
    mov     rax, [{block}]
    mov     rbx, [{block} + 8]
    mov     rcx, [{block} + 16]
    mov     rdx, [{block} + 24]
    mov     rsi, [{block} + 32]
    mov     rdi, [{block} + 40]
    mov     rbp, [{block} + 48]
    mov     r8, [{block} + 56]
    mov     r9, [{block} + 64]
    mov     r10, [{block} + 72]
    mov     r11, [{block} + 80]
    mov     r12, [{block} + 88]
    mov     r13, [{block} + 96]
    mov     r14, [{block} + 104]
    mov     r15, [{block} + 112]
    jmp     qword ptr [{block} + 264]
probe_return:
    mov     [{block} + 128], rax
    mov     [{block} + 136], rbx
    mov     [{block} + 144], rcx
    mov     [{block} + 152], rdx
    mov     [{block} + 160], rsi
    mov     [{block} + 168], rdi
    mov     [{block} + 176], rbp
    mov     [{block} + 184], r8
    mov     [{block} + 192], r9
    mov     [{block} + 200], r10
    mov     [{block} + 208], r11
    mov     [{block} + 216], r12
    mov     [{block} + 224], r13
    mov     [{block} + 232], r14
    mov     [{block} + 240], r15
    mov     rsp, [{block} + 256]
    pushfq
    pop     qword ptr [{block} + 248]
    cld
    pop     r15
    pop     r14
    pop     r13
    pop     r12
    pop     rbp
    pop     rbx
    ret
    "#,
    block = sym BLOCK,
);

unsafe extern "C" {
    fn probe_call();
    fn probe_return();
}

/// JMP to the address that follows.
const JUMP: [u8; 6] = [0xff, 0x25, 0, 0, 0, 0];
/// Bytes of the way back, behind the code.
pub const WAY_BACK: usize = 14;

/// Writes code to an address, and behind it the way back.
///
/// # Safety
/// The memory there, [`WAY_BACK`] bytes more than the code, holds nothing of this program.
pub unsafe fn write(address: u64, code: &[u8]) {
    let back = (probe_return as *const () as u64).to_le_bytes();
    for (place, byte) in (address..).zip(code.iter().chain(&JUMP).chain(&back)) {
        // SAFETY: the caller's promise.
        unsafe { (place as *mut u8).write_volatile(*byte) };
    }
}

/// Executes code that was written to an address; returns registers and flags afterwards, or the exception. Only for the boot CPU.
///
/// # Safety
/// The code changes no memory of this program, and lets it go on behind the code.
pub unsafe fn execute_at(address: u64, input: &Registers, flags: u64) -> Result<(Registers, u64), Trap> {
    // SAFETY: nobody else uses the block.
    unsafe {
        BLOCK.input.get().write_volatile(*input);
        BLOCK.flags_in.get().write_volatile(flags | 2);
        BLOCK.start.get().write_volatile(address);
    }
    // SAFETY: the caller's promise; what the C ABI keeps is kept.
    trap::expect(|| unsafe { core::arch::asm!("call {}", sym probe_call, clobber_abi("C")) })?;
    // SAFETY: as above.
    Ok(unsafe { (BLOCK.output.get().read_volatile(), BLOCK.flags_out.get().read_volatile()) })
}

/// Executes code; see [`execute_at`].
///
/// # Safety
/// As for [`execute_at`].
pub unsafe fn execute(code: &[u8], input: &Registers, flags: u64) -> Result<(Registers, u64), Trap> {
    let slot = BLOCK.code.get() as u64;
    // SAFETY: the slot has room for the longest code; the rest is the caller's promise.
    unsafe {
        write(slot, &code[..code.len().min(LONGEST)]);
        execute_at(slot, input, flags)
    }
}

/// Returns 15 different values that a careless copy (truncation, sign, neighbour) would change.
pub fn pattern(seed: u64) -> Registers {
    random::pattern(seed)
}

/// Where [`execute`] puts its code.
pub fn slot() -> u64 {
    BLOCK.code.get() as u64
}
