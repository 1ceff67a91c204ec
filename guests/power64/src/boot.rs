// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The way from the first instruction to `guest_main`, and for the other CPUs from RTAS to their work.
//!
//! A partition may be entered in either byte order (LoPAR, section 2.1.2), so the first instructions are ones that both
//! read, and that switch to little-endian.

use core::arch::global_asm;
use core::mem::offset_of;

pub use turnstile_guests_common::image::image;

use turnstile_guests_common::console::set_output;
use turnstile_guests_common::stack::Stack;
use turnstile_guests_common::{clock, options};

use crate::cpu::{self, Cpu};
use crate::{console, exception, hcall, platform, power, timer};

const BOOT_STACK_SIZE: usize = 64 << 10;

global_asm!(
    r#"
    // One instruction word in big-endian order.
    .macro  big, word
    .byte   ((\word) >> 24) & 0xff, ((\word) >> 16) & 0xff, ((\word) >> 8) & 0xff, (\word) & 0xff
    .endm

    // Goes on in little-endian order, 64-bit and real mode, at the next address, which is `here`, below 32 KiB. Changes
    // r10 and r11; r4 is 1 if it was in big-endian order, else as it was. `tdi 0, 0, 0x48`, which never traps, is a branch over
    // the next instruction in big-endian order.
    .macro  little, here
    tdi     0, 0, 0x48
    b       . + 4 * 9
    big     0x38800001              // li r4, 1
    big     0x39600001              // li r11, 1
    big     0x796bf806              // sldi r11, r11, 63: MSR.SF
    big     0x616b1003              // ori r11, r11, MSR.ME | MSR.RI | MSR.LE
    big     (0x39400000 + \here + 4 * 10)   // li r10, behind this
    big     0x7d5a03a6              // mtsrr0 r10
    big     0x7d7b03a6              // mtsrr1 r11
    big     0x4c000024              // rfid
    .endm

    .macro  vector, at
    .org    \at
    mtspr   274, 1                  // SPRG2: r1
    mfspr   1, 273                  // SPRG1: this CPU's record
    std     3, 0(1)
    li      3, \at
    b       exception_common
    .endm

    .section .head.text, "ax"
    .org    0x100
    .global _start
_start:                             // r3 = device tree, or the system reset of a running guest
    little  0x100
first_branch:                       // replaced by the one below
    b       boot_start

    vector  0x200
    vector  0x300
    vector  0x380
    vector  0x400
    vector  0x480
    vector  0x500
    vector  0x600
    vector  0x700
    vector  0x800
    vector  0x900
    vector  0x980
    vector  0xa00
    vector  0xb00
    vector  0xc00
    vector  0xd00
    vector  0xe00
    vector  0xe20
    vector  0xe40
    vector  0xe60
    vector  0xe80
    vector  0xea0
    vector  0xf00
    vector  0xf20
    vector  0xf40
    vector  0xf60
    vector  0xf80
    vector  0x1300
    vector  0x1500
    vector  0x1700

    .org    0x2000
    .global secondary_start
secondary_start:                    // r3 = the CPU's record, the others zero
    little  0x2000
    mr      13, 3
    ld      1, {stack_top}(3)
    lis     2, .TOC.@ha
    addi    2, 2, .TOC.@l
    bl      {secondary_main}
    nop
9:  b       9b

    .org    0x2100
    .global rtas_back
rtas_back:                          // from RTAS: 32-bit, big-endian
    little  0x2100
    mfspr   13, 273
    ld      1, {rtas_stack}(13)
    lis     2, .TOC.@ha
    addi    2, 2, .TOC.@l
    ld      0, 64(1)
    mtlr    0
    addi    1, 1, 48
    blr

    .org    0x2200
boot_start:
    // From now on the vector is that of a system reset.
    lwz     11, later_branch@l(0)
    li      10, first_branch@l
    stw     11, 0(10)
    dcbst   0, 10
    sync
    icbi    0, 10
    isync
    // The image's zeros.
    lis     4, __bss_start@ha
    addi    4, 4, __bss_start@l
    lis     5, __bss_end@ha
    addi    5, 5, __bss_end@l
    li      6, 0
1:  cmpld   4, 5
    bge     2f
    std     6, 0(4)
    addi    4, 4, 8
    b       1b
2:  lis     2, .TOC.@ha
    addi    2, 2, .TOC.@l
    lis     1, ({stack} + {stack_size} - 256)@ha
    addi    1, 1, ({stack} + {stack_size} - 256)@l
    li      0, 0
    std     0, 0(1)
    bl      {boot_main}
    nop
8:  b       8b

later_branch:
    .long   0x48000002 + 0x2300     // ba reset_again
    .org    0x2300
reset_again:                        // a system reset: as any other exception
    mtspr   274, 1
    mfspr   1, 273
    std     3, 0(1)
    li      3, 0x100
    b       exception_common
    .org    0x3000
    "#,
    stack = sym BOOT_STACK,
    stack_size = const BOOT_STACK_SIZE,
    boot_main = sym boot_main,
    secondary_main = sym crate::smp::secondary_main,
    stack_top = const offset_of!(Cpu, stack_top),
    rtas_stack = const offset_of!(Cpu, rtas_stack),
);

static BOOT_STACK: Stack<BOOT_STACK_SIZE> = Stack::new();

unsafe extern "C" {
    fn guest_main();
}

extern "C" fn boot_main(device_tree: u64) -> ! {
    set_output(console::write);
    cpu::init(0);
    // Interrupts come in this program's byte order from here on.
    hcall::call(hcall::SET_MODE, [hcall::set_mode::LITTLE_ENDIAN, hcall::set_mode::BYTE_ORDER, 0, 0]);
    // SAFETY: the loader hands over a device tree; nothing else runs yet.
    unsafe {
        clock::set(timer::clock);
        platform::init(device_tree);
        options::set_line(platform::platform().command_line());
    }
    cpu::this().server.store(u64::from(crate::smp::server(0)), core::sync::atomic::Ordering::Relaxed);
    exception::init();
    // SAFETY: `entry!` defines it with this signature in each guest.
    unsafe { guest_main() };
    power::off()
}
