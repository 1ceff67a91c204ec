// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The headers of the image, and the way from the first instruction to `guest_main`, and for the other CPUs from
//! their start-up interrupt to their work (PVH: Xen's `docs/misc/pvh.pandoc`; Multiboot Specification 0.6.96;
//! AMD APM vol. 2, section 14.6, enabling long mode).

use core::arch::global_asm;
use core::mem::offset_of;

pub use turnstile_guests_common::image::image;

use turnstile_guests_common::console::set_output;
use turnstile_guests_common::stack::Stack;
use turnstile_guests_common::{clock, options};

use crate::cpu::{self, Cpu};
use crate::mmu::TABLES;
use crate::smp::TRAMPOLINE;
use crate::{console, exception, platform, power, timer};

/// CR4 of every CPU: PAE, and SSE usable, for tests hold patterns in its registers.
pub const CR4: u64 = 1 << 5 | 1 << 9 | 1 << 10;
/// CR0 of every CPU: protection, paging, write protection, errors of the FPU as exceptions.
pub const CR0: u64 = 0x8001_0033;

const BOOT_STACK_SIZE: usize = 64 << 10;

global_asm!(
    r#"
    .section .note.pvh, "a", @note
    .balign 4
    .long   4, 8, 18                // name, descriptor, XEN_ELFNOTE_PHYS32_ENTRY
    .asciz  "Xen"
    .quad   _start

    .section .head.multiboot, "a"
    .balign 4
    .long   0x1badb002, 2, -(0x1badb002 + 2)    // memory information wanted

    .section .head.text, "ax"
    .code32
    .global _start
_start:                             // ebx = information of the loader; eax = 0x2badb002 if that is multiboot's
    cli
    cld
    movl    %eax, %esi
    movl    %ebx, %ebp
    movl    $__bss_start, %edi
    movl    $__bss_end, %ecx
    subl    %edi, %ecx
    shrl    $2, %ecx
    xorl    %eax, %eax
    rep stosl
    // The first 4 GiB one to one, in pages of 2 MiB; the last GiB, where devices are, without caches.
    movl    ${tables}, %edi
    leal    0x1007(%edi), %eax
    movl    %eax, (%edi)
    leal    0x2007(%edi), %eax
    xorl    %ecx, %ecx
1:  movl    %eax, 0x1000(%edi,%ecx,8)
    addl    $0x1000, %eax
    incl    %ecx
    cmpl    $4, %ecx
    jb      1b
    movl    $0x87, %eax
    xorl    %ecx, %ecx
2:  cmpl    $1536, %ecx
    jne     3f
    orl     $0x18, %eax
3:  movl    %eax, 0x2000(%edi,%ecx,8)
    addl    $0x200000, %eax
    incl    %ecx
    cmpl    $2048, %ecx
    jb      2b
    movl    %edi, %cr3
    lgdt    boot_gdtr
    movl    ${cr4}, %eax
    movl    %eax, %cr4
    movl    $0xc0000080, %ecx
    rdmsr
    orl     $0x100, %eax            // EFER.LME
    wrmsr
    movl    ${cr0}, %eax
    movl    %eax, %cr0
    ljmp    $8, $4f
    .code64
4:  movl    $16, %eax
    movl    %eax, %ds
    movl    %eax, %es
    movl    %eax, %ss
    movl    %eax, %fs
    movl    %eax, %gs
    movl    ${stack} + {stack_size}, %esp
    movl    %esi, %edi
    movl    %ebp, %esi
    xorl    %ebp, %ebp
    call    {boot_main}
5:  hlt
    jmp     5b

    .balign 8
boot_gdt:
    .quad   0
    .quad   0x00af9b000000ffff      // 64-bit code
    .quad   0x00cf93000000ffff      // data
    .quad   0x00cf9b000000ffff      // 32-bit code
boot_gdtr:
    .word   31
    .quad   boot_gdt

    // Copied to {trampoline}, where a started CPU begins in real mode.
    .section .rodata.trampoline, "a"
    .global trampoline_start, trampoline_end, trampoline_cr3, trampoline_cpu
    .code16
trampoline_start:
    cli
    cld
    movw    %cs, %ax
    movw    %ax, %ds
    lgdtl   trampoline_gdtr - trampoline_start
    movl    %cr0, %eax
    orl     $1, %eax
    movl    %eax, %cr0
    ljmpl   $24, $({trampoline} + 1f - trampoline_start)
    .code32
1:  movw    $16, %ax
    movw    %ax, %ds
    movw    %ax, %es
    movw    %ax, %ss
    movl    ({trampoline} + trampoline_cr3 - trampoline_start), %eax
    movl    %eax, %cr3
    movl    ${cr4}, %eax
    movl    %eax, %cr4
    movl    $0xc0000080, %ecx
    rdmsr
    orl     $0x100, %eax
    wrmsr
    movl    ({trampoline} + trampoline_cpu - trampoline_start), %ebx
    movl    ${cr0}, %eax
    movl    %eax, %cr0
    ljmp    $8, $secondary_long
    .balign 8
trampoline_gdtr:
    .word   31
    .long   boot_gdt
    .balign 8
trampoline_cr3:
    .quad   0
trampoline_cpu:
    .quad   0
trampoline_end:

    .section .text.secondary, "ax"
    .code64
secondary_long:
    movl    $16, %eax
    movl    %eax, %ds
    movl    %eax, %es
    movl    %eax, %ss
    movl    %eax, %fs
    movl    %eax, %gs
    movl    %ebx, %edi
    movq    {stack_top}(%rdi), %rsp
    xorl    %ebp, %ebp
    call    {secondary_main}
6:  hlt
    jmp     6b
    "#,
    tables = sym TABLES,
    cr4 = const CR4,
    cr0 = const CR0,
    stack = sym BOOT_STACK,
    stack_size = const BOOT_STACK_SIZE,
    boot_main = sym boot_main,
    trampoline = const TRAMPOLINE,
    stack_top = const offset_of!(Cpu, stack_top),
    secondary_main = sym crate::smp::secondary_main,
    options(att_syntax),
);

static BOOT_STACK: Stack<BOOT_STACK_SIZE> = Stack::new();

unsafe extern "C" {
    fn guest_main();
}

extern "C" fn boot_main(magic: u32, information: u32) -> ! {
    set_output(console::write);
    cpu::init(0);
    exception::init();
    // SAFETY: what the loader hands over lies below 4 GiB, which is mapped; nothing else runs yet.
    unsafe {
        clock::set(timer::clock);
        platform::init(magic, information);
        options::set_line(platform::platform().command_line());
    }
    cpu::this().apic_id.store(cpu::initial_apic_id(), core::sync::atomic::Ordering::Relaxed);
    console::init();
    // SAFETY: `entry!` defines it with this signature in each guest.
    unsafe { guest_main() };
    power::off()
}
