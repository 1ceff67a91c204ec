// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What happens behind the interrupt vectors (Power ISA 3.0B Book III, chapter 6).
//!
//! Interrupts put their frame below the stack that they find, so that they can be nested; all else has a stack of its own,
//! because a test may have spoilt the stack pointer.

use core::arch::{asm, global_asm};
use core::mem::offset_of;
use core::sync::atomic::Ordering::Relaxed;

pub use crate::frame::vector;

use crate::cpu::{self, Cpu, spr};
use crate::frame::Frame;
use crate::{irq, mfspr, power, println, trap};

/// Bytes below a stack pointer that belong to the interrupted code (ELFv2 ABI, section 2.2.3.4), and more.
const RED_ZONE: usize = 512;

global_asm!(
    r#"
    .macro  each_kept, instruction
    .irp    n, 5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
    \instruction \n, 8 * \n(1)
    .endr
    .endm

    .section .text.vectors, "ax"
    .balign 64
    .global exception_common
exception_common:                   // r1 = this CPU's record, r3 = vector; SPRG2 and the record have r1 and r3
    std     4, 8(1)
    mfcr    4
    std     4, 16(1)
    // External, decrementer, doorbell: on the stack in use.
    cmpldi  3, 0x500
    cmpldi  1, 3, 0x900
    cmpldi  5, 3, 0xa00
    ld      4, {exception_stack}(1)
    cror    2, 2, 6
    cror    2, 2, 22
    bne     1f
    mfspr   4, 274
    addi    4, 4, -{red_zone}
    clrrdi  4, 4, 4
1:  addi    4, 4, -{size}
    std     0, 0(4)
    std     2, 8 * 2(4)
    std     3, {vector}(4)
    ld      0, 0(1)
    std     0, 8 * 3(4)
    ld      0, 8(1)
    std     0, 8 * 4(4)
    ld      0, 16(1)
    std     0, {cr}(4)
    mr      3, 1
    mr      1, 4
    each_kept std
    mr      13, 3
    mfspr   5, 274
    std     5, 8 * 1(1)
    mfspr   5, 26
    std     5, {nip}(1)
    mfspr   5, 27
    std     5, {msr}(1)
    mflr    5
    std     5, {lr}(1)
    mfctr   5
    std     5, {ctr}(1)
    mfxer   5
    std     5, {xer}(1)
    mr      3, 1
    lis     2, .TOC.@ha
    addi    2, 2, .TOC.@l
    li      5, 0
    stdu    5, -64(1)
    bl      {handle}
    nop
    li      5, 0
    mtmsrd  5, 1                    // EE and RI off: SRR0 and SRR1 are in use from here on
    addi    1, 1, 64
    ld      5, {nip}(1)
    mtspr   26, 5
    ld      5, {msr}(1)
    mtspr   27, 5
    ld      5, {lr}(1)
    mtlr    5
    ld      5, {ctr}(1)
    mtctr   5
    ld      5, {xer}(1)
    mtxer   5
    ld      5, {cr}(1)
    mtcr    5
    each_kept ld
    ld      0, 0(1)
    ld      2, 8 * 2(1)
    ld      3, 8 * 3(1)
    ld      4, 8 * 4(1)
    ld      1, 8 * 1(1)
    rfid
    "#,
    exception_stack = const offset_of!(Cpu, exception_stack),
    red_zone = const RED_ZONE,
    size = const size_of::<Frame>(),
    nip = const offset_of!(Frame, nip),
    msr = const offset_of!(Frame, msr),
    cr = const offset_of!(Frame, cr),
    lr = const offset_of!(Frame, lr),
    ctr = const offset_of!(Frame, ctr),
    xer = const offset_of!(Frame, xer),
    vector = const offset_of!(Frame, vector),
    handle = sym handle,
);

unsafe extern "C" {
    fn exception_common();
}

/// First instruction of a vector's code that can lead elsewhere, and what the vectors of the image begin with.
const ENTRY: u32 = 0x7c32_43a6;

/// Lets all vectors that [`set_handler`] knows lead to the common handler.
pub fn init() {
    for vector in
        [vector::DATA_STORAGE, vector::EXTERNAL, vector::PROGRAM, vector::DECREMENTER, vector::DOORBELL]
    {
        write_instruction(vector, ENTRY);
    }
}

/// Lets a vector lead to code of one's own, which ends with RFID and finds all registers as they were.
pub fn set_handler(vector: u64, handler: unsafe extern "C" fn()) {
    // An absolute branch reaches the first 32 MiB, where the image is.
    write_instruction(vector, 0x4800_0002 | (handler as *const () as u32 & 0x03ff_fffc));
}

/// Writes one instruction so that it is executed from then on (Book II, section 4.6.2).
pub fn write_instruction(address: u64, instruction: u32) {
    // SAFETY: callers name a place for code, in which no object of this program is.
    unsafe {
        asm!("stw {1}, 0({0})", "dcbst 0, {0}", "sync", "icbi 0, {0}", "isync",
            in(reg_nonzero) address, in(reg) u64::from(instruction), options(nostack));
    }
}

extern "C" fn handle(frame: &mut Frame) {
    match frame.vector {
        vector::EXTERNAL => irq::on_external(),
        vector::DECREMENTER => irq::on_decrementer(),
        vector::DOORBELL => irq::on_event(irq::DOORBELL),
        vector::RESET => _ = cpu::this().resets.fetch_add(1, Relaxed),
        _ => {
            if !trap::take(frame) {
                unexpected(frame);
            }
        }
    }
}

fn unexpected(frame: &Frame) {
    match frame.vector {
        vector::MACHINE_CHECK => _ = cpu::this().machine_checks.fetch_add(1, Relaxed),
        _ => fatal(frame),
    }
}

fn fatal(frame: &Frame) -> ! {
    println!(
        "@error exception {:#x} at {:#x}, msr {:#x}, dar {:#x}, dsisr {:#x}, cpu {}",
        frame.vector,
        frame.nip,
        frame.msr,
        mfspr!(spr::DAR),
        mfspr!(spr::DSISR),
        cpu::this().index()
    );
    println!("  r0 to r31: {:x?}, lr {:#x}", frame.registers, frame.lr);
    power::give_up()
}

/// The address of the common handler, for tests that look at it.
pub fn common() -> u64 {
    exception_common as *const () as u64
}
