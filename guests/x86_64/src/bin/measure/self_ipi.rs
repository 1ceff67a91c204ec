// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupts to itself: sent, taken by a handler that only ends it, and waited for.

use core::arch::global_asm;

use turnstile_guests_x86_64::apic::{PAGE, icr};
use turnstile_guests_x86_64::{apic, bench, cpu, exception, measured_loop, println, pv_eoi};

/// The vector that the handlers are for.
pub const VECTOR: u8 = 0x61;

// R14 counts the interrupts; R13 is the address of the word of paravirtual EOI. The loops name RAX, RCX and RDX as
// changed, so that handlers need not keep them.
global_asm!(
    r#"
    .section .text.self_ipi, "ax"
    .balign 64
self_ipi_msr:
    inc     r14
    mov     ecx, 0x80b
    xor     eax, eax
    xor     edx, edx
    wrmsr
    iretq
    .balign 64
self_ipi_pv_msr:
    inc     r14
    btr     dword ptr [r13], 0
    jc      2f
    mov     ecx, 0x80b
    xor     eax, eax
    xor     edx, edx
    wrmsr
2:  iretq
    .balign 64
self_ipi_page:
    inc     r14
    mov     eax, 0xfee000b0
    mov     dword ptr [rax], 0
    iretq
    .balign 64
self_ipi_pv_page:
    inc     r14
    btr     dword ptr [r13], 0
    jc      3f
    mov     eax, 0xfee000b0
    mov     dword ptr [rax], 0
3:  iretq
    "#
);

unsafe extern "C" {
    fn self_ipi_msr();
    fn self_ipi_pv_msr();
    fn self_ipi_page();
    fn self_ipi_pv_page();
}

/// Sets the APIC, paravirtual EOI and the handler up; says whether this machine has what is needed.
pub fn prepare(x2apic: bool, pv: bool) -> bool {
    if x2apic && !cpu::has(cpu::feature::X2APIC) {
        println!("@error this machine has no x2APIC");
        return false;
    }
    if pv && !pv_eoi::is_offered() {
        println!("@error this hypervisor does not offer paravirtual EOI");
        return false;
    }
    apic::init_as(x2apic);
    if pv {
        pv_eoi::enable();
    }
    let handler = match (x2apic, pv) {
        (true, false) => self_ipi_msr as *const (),
        (true, true) => self_ipi_pv_msr as *const (),
        (false, false) => self_ipi_page as *const (),
        (false, true) => self_ipi_pv_page as *const (),
    };
    exception::set_gate(VECTOR, handler as u64);
    true
}

/// Sends with interrupts let in, and waits until the handler has counted.
pub fn measure(row: &str, x2apic: bool, pv: bool) {
    if !prepare(x2apic, pv) {
        return;
    }
    cpu::unmask();
    match (x2apic, pv) {
        (true, false) => bench::measure(row, by_msr, nothing::<8>),
        (true, true) => bench::measure(row, by_msr, nothing::<6>),
        (false, _) => bench::measure(row, by_page, nothing::<3>),
    }
    cpu::mask();
    if pv && pv_eoi::is_set() {
        println!("@error the bit of paravirtual EOI is set while no interrupt is in service");
    }
}

fn by_msr(count: u64) {
    measured_loop!(count, [
            "inc r15",
            "mov ecx, 0x83f",
            "mov eax, 0x61",
            "xor edx, edx",
            "wrmsr",
            "2:",
            "cmp r14, r15",
            "je 3f",
            "pause",
            "jmp 2b",
            "3:",
        ], inout("r14") 0_u64 => _, inout("r15") 0_u64 => _, in("r13") word(), out("rax") _, out("rcx") _,
        out("rdx") _,);
}

fn by_page(count: u64) {
    measured_loop!(count, [
            "inc r15",
            "mov dword ptr [{icr}], {command}",
            "2:",
            "cmp r14, r15",
            "je 3f",
            "pause",
            "jmp 2b",
            "3:",
        ], inout("r14") 0_u64 => _, inout("r15") 0_u64 => _, in("r13") word(), out("rax") _, out("rcx") _,
        out("rdx") _, icr = in(reg) PAGE + 0x300,
        command = const (icr::SELF | icr::ASSERT | VECTOR as u64) as u32,);
}

/// As many instructions as the loop and the handler have, without what exits: the loop that counts by itself, and
/// `MORE` others.
fn nothing<const MORE: usize>(count: u64) {
    measured_loop!(count,
        ["inc r15", "nop", "cmp r14, r15", "jae 3f", "inc r14", "3:", ".rept {more}", "nop", ".endr"],
        inout("r14") 0_u64 => _, inout("r15") 0_u64 => _, more = const MORE,);
}

/// Sends with interrupts masked, and takes the interrupt by STI and HLT.
pub fn halt_wake() {
    let x2apic = cpu::has(cpu::feature::X2APIC);
    if !prepare(x2apic, false) {
        return;
    }
    if !x2apic {
        println!("@error this machine has no x2APIC");
        return;
    }
    bench::measure(
        "halt-wake",
        |n| {
            measured_loop!(n, [
                    "mov ecx, 0x83f",
                    "mov eax, 0x61",
                    "xor edx, edx",
                    "wrmsr",
                    "sti",
                    "hlt",
                    "cli",
                ], inout("r14") 0_u64 => _, in("r13") word(), out("rax") _, out("rcx") _, out("rdx") _,)
        },
        |n| {
            measured_loop!(n, ["mov ecx, 0x83f", "mov eax, 0x61", "xor edx, edx", "nop", "sti", "nop", "cli"],
            out("rax") _, out("rcx") _, out("rdx") _,)
        },
    );
}

/// Returns the address of the word of paravirtual EOI.
pub fn word() -> u64 {
    cpu::this().eoi.0.as_ptr() as u64
}
