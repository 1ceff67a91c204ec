// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exceptions that are expected: the code that raises one is left as by a return, with all registers that a function
//! keeps as they were, stack pointer and flags included.

use core::arch::{asm, global_asm};
use core::fmt;
use core::mem::offset_of;

use turnstile_guests_common::call;
use turnstile_guests_common::trap::Record;

use crate::cpu::{self, Cpu};
use crate::frame::{Frame, vector};
use crate::read_control;

/// An exception that was taken.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Trap {
    /// Its vector.
    pub vector: u64,
    /// Its error code.
    pub error: u64,
    /// CR2 of a page fault, DR6 of a debug exception.
    pub address: u64,
    /// Where it happened.
    pub rip: u64,
}

impl fmt::Display for Trap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { vector, error, address, rip } = self;
        match *vector {
            vector::PF => write!(f, "#PF({error:#x}) of {address:#x} at {rip:#x}"),
            vector::GP => write!(f, "#GP({error:#x}) at {rip:#x}"),
            vector::UD => write!(f, "#UD at {rip:#x}"),
            vector => write!(f, "exception {vector} ({error:#x}) at {rip:#x}"),
        }
    }
}

global_asm!(
    r#"
    .section .text.trap, "ax"
    .global trap_call, trap_return
trap_call:                          // rdi = function, rsi = its argument; eax = whether it was left by an exception
    push    rbx
    push    rbp
    push    r12
    push    r13
    push    r14
    push    r15
    pushfq
    mov     rax, gs:[0]
    push    qword ptr [rax + {stack}]
    mov     [rax + {stack}], rsp
    mov     rax, rdi
    mov     rdi, rsi
    call    rax
    xor     eax, eax
trap_return:
    mov     rdx, gs:[0]
    pop     qword ptr [rdx + {stack}]
    popfq
    pop     r15
    pop     r14
    pop     r13
    pop     r12
    pop     rbp
    pop     rbx
    ret
    "#,
    stack = const offset_of!(Cpu, trap) + offset_of!(Record, stack),
);

unsafe extern "C" {
    fn trap_call(function: extern "C" fn(*mut u8), argument: *mut u8) -> u32;
    fn trap_return();
}

/// Leaves the code that expected this exception; says whether there was any. Exceptions of CPUs below call it.
pub fn take(frame: &mut Frame) -> bool {
    let record = &cpu::this().trap;
    // An NMI or machine check is nobody's fault, so it goes to its counter.
    if frame.vector == vector::NMI || frame.vector == vector::MC {
        return false;
    }
    let Some(stack) = record.expected() else { return false };
    let address = match frame.vector {
        vector::DB => {
            let status = read_control!("dr6");
            crate::write_control!("dr6", 0xffff_0ff0);
            status
        }
        _ => read_control!("cr2"),
    };
    record.enter([frame.vector, frame.error, address, frame.rip]);
    frame.rip = trap_return as *const () as u64;
    frame.rsp = stack;
    frame.cs = u64::from(cpu::selector::CODE);
    frame.ss = u64::from(cpu::selector::DATA);
    // Quiet until the flags come back from the stack.
    frame.rflags = 2;
    let [rax, ..] = &mut frame.registers;
    *rax = 1;
    true
}

/// What [`leave`] enters as the vector. No exception has it.
pub const LEFT: u64 = 256;

/// Leaves the code that this CPU runs by [`expect`] as an exception would.
///
/// # Safety
/// That code's stack is as it was, and this is called on another one.
///
/// # Panics
/// When there is no such code.
pub unsafe fn leave() -> ! {
    let record = &cpu::this().trap;
    let Some(stack) = record.expected() else { panic!("there is nothing to leave") };
    record.enter([LEFT, 0, 0, 0]);
    // SAFETY: `trap_call` has left the stack so that `trap_return` goes on with it; the rest is the caller's promise.
    unsafe {
        asm!("mov rsp, {}", "mov eax, 1", "jmp {}", in(reg) stack, sym trap_return, options(noreturn));
    }
}

/// Calls a function; returns what it returned, or the exception that it was left by. What it would have dropped stays.
pub fn expect<T>(function: impl FnOnce() -> T) -> Result<T, Trap> {
    // SAFETY: `trap_call` calls the function with its argument, once.
    let result = unsafe { call::by(|function, argument| trap_call(function, argument) == 0, function) };
    result.ok_or_else(|| {
        let [vector, error, address, rip] = cpu::this().trap.came();
        Trap { vector, error, address, rip }
    })
}

/// Calls a function; returns the exception that it was left by.
pub fn caught(function: impl FnOnce()) -> Option<Trap> {
    expect(function).err()
}
