// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The Image header and the way from the first instruction to `guest_main`
//! (Linux Documentation/arch/arm64/booting.rst; relocation: ELF for the Arm 64-bit architecture).

use core::arch::global_asm;
use core::mem::offset_of;
use core::sync::atomic::Ordering::Relaxed;

pub use turnstile_guests_common::image::image;

use turnstile_guests_common::console::set_output;
use turnstile_guests_common::stack::Stack;
use turnstile_guests_common::{clock, options};

use crate::cpu::{self, Cpu};
use crate::{console, platform, psci, timer};

/// SCTLR_EL1 with the RES1 bits of Armv8.0, stack alignment checks and the instruction cache on, MMU and
/// data cache off.
pub const SCTLR_INITIAL: u64 = 0x30d0_0800 | 1 << 3 | 1 << 12;

global_asm!(
    r#"
    .section .head.text, "ax"
    .global _start
_start:
    b       primary_entry
    .word   0
    .quad   0                       // text_offset
    .quad   __image_size
    .quad   0xa                     // little endian, 4 KiB pages, anywhere in memory
    .quad   0, 0, 0
    .ascii  "ARM\x64"
    .word   0

    .section .text.boot, "ax"
primary_entry:
    msr     daifset, #0xf
    mrs     x9, currentel
    cmp     x9, #(1 << 2)
    b.ne    9f                      // only EL1 is a guest
    mov     x20, x0
    ldr     x9, ={sctlr}
    msr     sctlr_el1, x9
    mov     x9, #(3 << 20)          // FP and SIMD usable: tests hold patterns in them
    msr     cpacr_el1, x9
    isb
    adrp    x9, __bss_start
    add     x9, x9, :lo12:__bss_start
    adrp    x10, __bss_end
    add     x10, x10, :lo12:__bss_end
1:  cmp     x9, x10
    b.hs    2f
    stp     xzr, xzr, [x9], #16
    b       1b
2:  adrp    x11, __image_start      // load address = bias, for the link address is 0
    adrp    x9, __rela_start
    add     x9, x9, :lo12:__rela_start
    adrp    x10, __rela_end
    add     x10, x10, :lo12:__rela_end
3:  cmp     x9, x10
    b.hs    4f
    ldp     x12, x13, [x9]          // offset, info
    ldr     x14, [x9, #16]          // addend
    add     x9, x9, #24
    cmp     w13, #1027              // R_AARCH64_RELATIVE; the linker makes no others
    b.ne    3b
    add     x14, x14, x11
    str     x14, [x12, x11]
    b       3b
4:  adrp    x19, {boot_cpu}
    add     x19, x19, :lo12:{boot_cpu}
    adrp    x9, {boot_stack}
    add     x9, x9, :lo12:{boot_stack}
    add     x10, x9, #{exception_size}
    str     x10, [x19, #{exception_stack}]
    add     x10, x9, #{boot_stack_size}
    str     x10, [x19, #{main_stack}]
    bl      set_up_cpu
    mov     x0, x20
    bl      boot_main
9:  wfi
    b       9b

    // x19 = this CPU's data: sets vectors, both stack pointers and TPIDR_EL1.
set_up_cpu:
    adrp    x9, exception_vectors
    add     x9, x9, :lo12:exception_vectors
    msr     vbar_el1, x9
    msr     tpidr_el1, x19
    msr     spsel, #1
    ldr     x9, [x19, #{exception_stack}]
    mov     sp, x9
    msr     spsel, #0
    ldr     x9, [x19, #{main_stack}]
    mov     sp, x9
    isb
    ret

    .section .text.secondary, "ax"
    .global secondary_entry
secondary_entry:                    // PSCI CPU_ON: x0 = context = this CPU's data
    msr     daifset, #0xf
    mov     x19, x0
    ldr     x9, ={sctlr}
    msr     sctlr_el1, x9
    mov     x9, #(3 << 20)
    msr     cpacr_el1, x9
    isb
    ldp     x9, x10, [x19, #{translation}]
    ldp     x11, x12, [x19, #({translation} + 16)]
    cbz     x12, 7f
    msr     mair_el1, x9            // before the stack is used: what the caches hold of it is not older
    msr     tcr_el1, x10
    msr     ttbr0_el1, x11
    isb
    tlbi    vmalle1
    ic      iallu
    dsb     sy
    isb
    msr     sctlr_el1, x12
    isb
7:  bl      set_up_cpu
    mov     x0, x19
    ldr     x9, [x19, #{entry}]
    blr     x9
8:  wfi
    b       8b
    "#,
    sctlr = const SCTLR_INITIAL,
    boot_cpu = sym BOOT_CPU,
    boot_stack = sym BOOT_STACK,
    exception_size = const EXCEPTION_STACK,
    boot_stack_size = const BOOT_STACK_SIZE,
    exception_stack = const offset_of!(Cpu, exception_stack),
    main_stack = const offset_of!(Cpu, main_stack),
    translation = const offset_of!(Cpu, translation),
    entry = const offset_of!(Cpu, entry),
);

/// Bytes of each CPU's exception stack (SP_EL1).
pub const EXCEPTION_STACK: usize = 8 << 10;
const BOOT_STACK_SIZE: usize = 64 << 10;

static BOOT_STACK: Stack<BOOT_STACK_SIZE> = Stack::new();
static BOOT_CPU: Cpu = Cpu::new(0);

unsafe extern "C" {
    fn guest_main();
}

#[unsafe(no_mangle)]
extern "C" fn boot_main(device_tree: u64) -> ! {
    set_output(console::write);
    // SAFETY: the boot protocol has the device tree at x0; nothing else runs yet.
    unsafe {
        clock::set(timer::clock);
        platform::init(device_tree);
        options::set_line(platform::platform().command_line());
    }
    let index = platform::platform().cpus.as_slice().iter().position(|entry| *entry == cpu::affinity());
    cpu::this().index.store(index.unwrap_or(0) as u64, Relaxed);
    console::init();
    // SAFETY: `entry!` defines it with this signature in each guest.
    unsafe { guest_main() };
    psci::system_off()
}
