// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Attacks that would stop this CPU are done by another one, which is then started anew.

use core::arch::global_asm;
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

use turnstile_guests_x86_64::apic::{self, icr};
use turnstile_guests_x86_64::smp::TRAMPOLINE;
use turnstile_guests_x86_64::{cpu, mmio, println, pv_eoi, random, smp, timer};

use crate::{Tally, is_bare, stride};

static STEPS: AtomicU64 = AtomicU64::new(0);

/// INIT, start-up interrupts, NMIs and others to a CPU that is starting, running, halted, in service, with paravirtual EOI.
pub fn races(tally: &mut Tally) {
    fn work(how: u64) {
        if how & 1 != 0 && pv_eoi::is_offered() {
            pv_eoi::enable();
        }
        cpu::unmask();
        loop {
            STEPS.fetch_add(1, SeqCst);
            match how {
                0..4 => apic::send_to_self(0x61),
                4..8 => cpu::wait(),
                _ => cpu::relax(),
            }
            cpu::unmask();
        }
    }
    if smp::count() == 1 {
        return;
    }
    let mut random = random::stream(20);
    let target = smp::apic_id(1);
    for _ in 0..200 / stride().min(200) {
        let how = random.below(12);
        let started = smp::start(1, work, how);
        tally.add(!started);
        if !started {
            println!("@error CPU 1 does not start");
            return;
        }
        for _ in 0..random.below(20) {
            match random.below(6) {
                0 => apic::send(target, icr::NMI | icr::ASSERT),
                1 => smp::send_startup(1, random.below(256) as u8),
                2 => apic::send_to(target, 0x30 + random.below(0xc0) as u8),
                3 => _ = timer::wait(random.below(50), || false),
                4 if !is_bare() => apic::send(target, icr::ASSERT | random.below(8) << 8 & !0x100 | 0x51),
                _ => apic::send(0, icr::OTHERS | icr::ASSERT | 0x62),
            }
            tally.add(false);
        }
        smp::send_init(1);
    }
    smp::send_init(1);
}

// Real mode, and protected mode without paging: what a PC's old programs do, badly.
global_asm!(
    r#"
    .section .rodata.wild, "a"
    .balign 16
    .code16
    .global wild_start, wild_end
wild_start:
    // Unreal: protected mode for a moment, with a descriptor table of zeros.
    mov     eax, cr0
    or      al, 1
    mov     cr0, eax
    and     al, 0xfe
    mov     cr0, eax
    xor     ax, ax
    mov     ds, ax
    mov     byte ptr [{mark}], 1
    // Ports and CPUID, strings over the end of the segment.
    xor     eax, eax
    cpuid
    mov     dx, 0x80
    in      eax, dx
    out     dx, ax
    mov     ax, 0xb800
    mov     ds, ax
    mov     es, ax
    mov     word ptr [0], 0x1234
    mov     si, 0xfff0
    mov     di, 0xfff8
    mov     cx, 0x40
    rep movsd
    // The end of the first mebibyte and beyond: the header that only a loader looks at.
    mov     ax, 0xffff
    mov     ds, ax
    mov     ax, word ptr [0x10]
    mov     word ptr [0x1000], ax
    // What follows this, wherever it leads, does not write to this program.
    xor     ax, ax
    mov     ds, ax
    mov     ax, word ptr [0xffff]
    // RDMSR of what is not there: through the vector table, which has no handler.
    mov     ecx, 0xdeadbeef
    rdmsr
    int     0x80
    hlt
wild_end:
    .code64
    "#,
    mark = const MARK,
);

unsafe extern "C" {
    static wild_start: u8;
    static wild_end: u8;
}

/// Where the wild code is.
const WILD: u64 = 0x9000;
/// What it sets when it has been in protected mode and is back.
const MARK: u64 = 0x9ff8;

/// Starts the CPU in pages of the first mebibyte: in code, in tables, in holes, in ROM. Every eighth: what runs there never
/// pauses, which costs an emulator that lets CPUs take turns its time.
///
/// Nowhere in there is what may rightly end the machine: code that loads descriptor tables or stays in protected mode, whose
/// next fault would be the last.
pub fn real_mode(tally: &mut Tally) {
    if smp::count() == 1 || is_bare() {
        return;
    }
    for page in (0..256_u64).step_by(8 * stride()).chain([WILD >> 12; 4]) {
        // Interrupt vectors: to the wild code, to ROM, to zeros, to a hole.
        let vectors = [WILD << 12, 0xf000_fff0_f000_fff0, 0, 0xa000_0000_a000_0000][page as usize / 8 % 4];
        smp::send_init(1);
        timer::wait(20, || false);
        lay_out(vectors);
        smp::send_startup(1, page as u8);
        // In protected mode an NMI would find no handler: that ends a machine.
        let gets_there = page == WILD >> 12;
        let came = timer::wait(if gets_there { smp::PATIENCE } else { 200 }, || mmio::read32(MARK) != 0);
        if gets_there && !came {
            println!("@error the wild code was not executed");
        }
        apic::send(smp::apic_id(1), icr::NMI | icr::ASSERT);
        tally.add(false);
    }
    smp::send_init(1);
    timer::wait(1000, || false);
}

/// Fills the vector table with these vectors, two of them at a time, and puts wild code where it belongs, and HLT where the
/// trampoline was: zeros are instructions that lead there from below.
fn lay_out(vectors: u64) {
    const HLT: u8 = 0xf4;
    let start = &raw const wild_start;
    // SAFETY: the pages are memory that nothing of this program is in, whatever the other CPU does there on its way into INIT.
    unsafe {
        let length = (&raw const wild_end).offset_from(start) as usize;
        core::ptr::copy(start, WILD as *mut u8, length);
        core::ptr::write_bytes(TRAMPOLINE as *mut u8, HLT, 0x1000);
    }
    mmio::write32(MARK, 0);
    for pair in 0..128 {
        mmio::write64(8 * pair, vectors);
    }
}
