// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The interrupt-descriptor table and what exceptions and interrupts do (AMD APM vol. 2, chapter 8).

use core::arch::global_asm;
use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::Relaxed;

pub use crate::frame::vector;

use crate::cpu::{self, selector};
use crate::frame::Frame;
use crate::{apic, irq, power, println, read_control, trap};

global_asm!(
    r#"
    .section .text.vectors, "ax"
    .balign 16
    .global exception_stubs
exception_stubs:
    .set    vector, 0
    .rept   256
    .balign 16
    push    vector
    jmp     exception_common
    .set    vector, vector + 1
    .endr

// The CPU aligns the stack before it pushes five words, and the error code if there is one: the same vector comes with one
// as an exception, and without one as an interrupt or by INT.
exception_common:
    test    spl, 8
    jnz     1f
    push    [rsp]
    mov     qword ptr [rsp + 8], 0
1:  cld
    push    r15
    push    r14
    push    r13
    push    r12
    push    r11
    push    r10
    push    r9
    push    r8
    push    rbp
    push    rdi
    push    rsi
    push    rdx
    push    rcx
    push    rbx
    push    rax
    mov     rdi, rsp
    mov     rbp, rsp
    and     rsp, -16
    call    {handle}
    mov     rsp, rbp
    pop     rax
    pop     rbx
    pop     rcx
    pop     rdx
    pop     rsi
    pop     rdi
    pop     rbp
    pop     r8
    pop     r9
    pop     r10
    pop     r11
    pop     r12
    pop     r13
    pop     r14
    pop     r15
    add     rsp, 16
    iretq
    "#,
    handle = sym handle,
);

unsafe extern "C" {
    static exception_stubs: u8;
}

#[repr(C, align(4096))]
struct Table(UnsafeCell<[[u64; 2]; 256]>);

// SAFETY: entries are written whole, by the boot CPU.
unsafe impl Sync for Table {}

static IDT: Table = Table(UnsafeCell::new([[0; 2]; 256]));

/// Builds the table.
pub fn init() {
    (0..=255).for_each(reset_gate);
    load();
}

/// Loads the table on this CPU.
pub fn load() {
    cpu::load_idt(IDT.0.get() as u64, 4095);
}

/// Lets a vector lead to the common handler.
pub fn reset_gate(vector: u8) {
    let stub = &raw const exception_stubs as u64 + 16 * u64::from(vector);
    let stack = match u64::from(vector) {
        vector::NMI => 2,
        vector::DF => 3,
        vector::MC => 4,
        0..16 => 1,
        // Interrupts stay on the stack that they find, so that they can be nested. From 16 on they may be interrupts.
        _ => 0,
    };
    write_gate(vector, stub, stack, 0);
}

/// Lets a vector lead to a handler of one's own, which ends with IRETQ, on the stack that it finds.
pub fn set_gate(vector: u8, handler: u64) {
    write_gate(vector, handler, 0, 0);
}

/// As [`reset_gate`], but also for INT n of this privilege level.
pub fn open_gate(vector: u8) {
    write_gate(vector, &raw const exception_stubs as u64 + 16 * u64::from(vector), 1, 3);
}

fn write_gate(vector: u8, handler: u64, stack: u64, level: u64) {
    let low = handler & 0xffff
        | u64::from(selector::CODE) << 16
        | stack << 32
        | (0x8e | level << 5) << 40
        | (handler >> 16 & 0xffff) << 48;
    let entry = IDT.0.get().cast::<[u64; 2]>().wrapping_add(usize::from(vector));
    // SAFETY: in bounds.
    unsafe { entry.write_volatile([low, handler >> 32]) };
}

extern "C" fn handle(frame: &mut Frame) {
    if is_interrupt(frame) {
        return irq::on_interrupt(frame.vector as u8);
    }
    if trap::take(frame) {
        return;
    }
    match frame.vector {
        vector::NMI => _ = cpu::this().nmis.fetch_add(1, Relaxed),
        vector::MC => _ = cpu::this().machine_checks.fetch_add(1, Relaxed),
        _ => fatal(frame),
    }
}

/// Says whether it came from the APIC, which takes vectors from 16 on.
fn is_interrupt(frame: &Frame) -> bool {
    match frame.vector {
        0..16 => false,
        16..32 => frame.error == 0 && apic::bit(apic::register::ISR, frame.vector as u8),
        _ => true,
    }
}

fn fatal(frame: &Frame) -> ! {
    println!(
        "@error exception {} error {:#x} at {:#x}, cr2 {:#x}, rsp {:#x}, cpu {}",
        frame.vector,
        frame.error,
        frame.rip,
        read_control!("cr2"),
        frame.rsp,
        cpu::this().index()
    );
    println!("  rax, rbx, rcx, rdx, rsi, rdi, rbp, r8 to r15: {:x?}", frame.registers);
    power::off()
}
