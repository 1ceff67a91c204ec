// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupts between two CPUs.
//!
//! Where one thread emulates all CPUs in turn, the ticks contain the waiting of all; what each side's exit
//! costs is then for the meter to say.

use core::arch::global_asm;
use core::sync::atomic::{AtomicU64, Ordering};

use turnstile_guests_x86_64::state::xsave;
use turnstile_guests_x86_64::{apic, bench, cpu, exception, measured_loop, options, println, smp};

const VECTOR: u8 = 0x62;

/// A word that has a cache line of its own.
#[repr(align(64))]
struct Line(AtomicU64);

/// Interrupts that the other CPU has taken, and this one.
static ANSWERS: Line = Line(AtomicU64::new(0));

// R14 is the address of the word that is counted up. The interrupted code names RAX, RCX and RDX as changed.
global_asm!(
    r#"
    .section .text.ipi, "ax"
    .balign 64
ipi_msr:
    mov     ecx, 0x80b
    xor     eax, eax
    xor     edx, edx
    wrmsr
    inc     qword ptr [r14]
    iretq
    "#
);

unsafe extern "C" {
    fn ipi_msr();
}

/// Starts the other CPU; says whether this machine has one.
fn prepare(work: fn(u64)) -> bool {
    if !cpu::has(cpu::feature::X2APIC) {
        println!("@error this machine has no x2APIC");
        return false;
    }
    if smp::count() < 2 {
        println!("@error this machine has one CPU: the row needs two");
        return false;
    }
    apic::init_as(true);
    exception::set_gate(VECTOR, ipi_msr as *const () as u64);
    if !smp::start(1, work, u64::from(smp::apic_id(0))) {
        println!("@error CPU 1 does not start");
        return false;
    }
    true
}

/// The other CPU polls memory and takes interrupts meanwhile.
pub fn running() {
    if !prepare(receive) {
        return;
    }
    let answers = ANSWERS.0.as_ptr();
    let command = u64::from(smp::apic_id(1));
    bench::measure(
        "ipi-running",
        |n| {
            measured_loop!(n, [
                    "inc r15",
                    "mov ecx, 0x830",
                    "mov eax, 0x4062",
                    "mov edx, r13d",
                    "wrmsr",
                    "2:",
                    "cmp [r14], r15",
                    "jae 3f",
                    "pause",
                    "jmp 2b",
                    "3:",
                ], in("r14") answers, inout("r15") ANSWERS.0.load(Ordering::SeqCst) => _, in("r13") command,
                out("rax") _, out("rcx") _, out("rdx") _,)
        },
        |n| {
            measured_loop!(n, ["inc r15", "nop", "cmp [r14], r15", "jae 3f", "nop", "3:"],
            in("r14") answers, inout("r15") 0_u64 => _,)
        },
    );
}

/// Takes interrupts for ever.
fn receive(_: u64) {
    // SAFETY: the handler changes the word of answers and the registers named; the code never ends.
    unsafe {
        core::arch::asm!("sti", "2:", "pause", "jmp 2b", in("r14") ANSWERS.0.as_ptr(), options(noreturn));
    }
}

/// The two CPUs take turns: each sends to the other and waits by HLT. One operation is there and back, divided by
/// `parts`. With the option `facilities` both use vector registers each time.
pub fn handoff(row: &str, parts: u64) {
    static MINE: Line = Line(AtomicU64::new(0));
    if !prepare(take_turns) {
        return;
    }
    let (target, halt) = (smp::apic_id(1), halt());
    bench::measure(
        row,
        |count| turns(count.div_ceil(parts), target, halt, &MINE.0),
        |count| {
            measured_loop!(count / parts, ["inc r15", "nop", "cmp [r14], r15", "jae 3f", "nop", "3:"],
                in("r14") MINE.0.as_ptr(), inout("r15") 0_u64 => _,)
        },
    );
    if options::get("once").is_some() {
        println!("  {} turns", MINE.0.load(Ordering::SeqCst));
    }
}

// The HLT of both CPUs, and what they use behind it: where they share one CPU, its visits are of one kind.
global_asm!(
    r#"
    .section .text.halt, "ax"
measure_halt:
    sti
    hlt
    cli
    ret
measure_halt_sse:
    sti
    hlt
    cli
    xorps   xmm0, xmm0
    ret
measure_halt_avx:
    sti
    hlt
    cli
    vxorps  ymm0, ymm0, ymm0
    ret
    "#
);

unsafe extern "C" {
    fn measure_halt();
    fn measure_halt_sse();
    fn measure_halt_avx();
}

/// Returns how this CPU waits, with what it then uses switched on.
fn halt() -> u64 {
    let function = match options::get("facilities").is_some() {
        true if xsave::exists() => {
            xsave::use_all();
            measure_halt_avx
        }
        true => measure_halt_sse,
        false => measure_halt as unsafe extern "C" fn(),
    };
    function as *const () as u64
}

/// Sends, and waits by HLT until the answer has been counted; interrupts are masked but for HLT.
fn turns(count: u64, target: u32, halt: u64, mine: &AtomicU64) {
    measured_loop!(count, [
            "inc r15",
            "mov ecx, 0x830",
            "mov eax, 0x4062",
            "mov edx, r13d",
            "wrmsr",
            "2:",
            "cmp [r14], r15",
            "jae 3f",
            "call r11",
            "jmp 2b",
            "3:",
        ], in("r11") halt, in("r14") mine.as_ptr(), inout("r15") mine.load(Ordering::SeqCst) => _, in("r13") u64::from(target),
        out("rax") _, out("rcx") _, out("rdx") _,);
}

/// Waits for the first interrupt, and then answers each until the machine is switched off.
fn take_turns(first: u64) {
    // SAFETY: as for `turns`, but that waiting comes first, and it never ends.
    unsafe {
        core::arch::asm!(
            "2:",
            "inc r15",
            "3:",
            "cmp [r14], r15",
            "jae 4f",
            "call r11",
            "jmp 3b",
            "4:",
            "mov ecx, 0x830",
            "mov eax, 0x4062",
            "mov edx, r13d",
            "wrmsr",
            "jmp 2b",
            in("r14") ANSWERS.0.as_ptr(), in("r15") 0, in("r13") first, in("r11") halt(),
            options(noreturn),
        );
    }
}
