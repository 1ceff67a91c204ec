// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Breakpoints, and single steps over instructions that exit (AMD APM vol. 2, chapter 13).

use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use turnstile_guests_x86_64::exception::vector;
use turnstile_guests_x86_64::probe;
use turnstile_guests_x86_64::state::debug;
use turnstile_guests_x86_64::test::{Outcome, Test};
use turnstile_guests_x86_64::{apic, check, check_eq, cpu, io_apic, pic, port, trap};

pub const TESTS: &[Test] = &[
    Test { name: "debug-watch", run: watch },
    Test { name: "debug-step", run: step },
    Test { name: "debug-exceptions", run: exceptions },
    Test { name: "debug-shadow", run: shadow },
];

static WORD: AtomicU64 = AtomicU64::new(0);

fn watch() -> Outcome {
    let address = WORD.as_ptr() as u64;
    debug::watch(address);
    cpu::cpuid(0, 0);
    port::read8(pic::MASK);
    let trap = debug::touch(address);
    debug::unwatch();
    let Some(trap) = trap else {
        check!(false, "no exception");
        return Ok(());
    };
    check_eq!(trap.vector, vector::DB, "the exception");
    check_eq!(trap.address & 0xf, 1, "DR6");
    check!(debug::touch(address).is_none(), "an exception without a breakpoint");
    Ok(())
}

/// With RFLAGS.TF, the exception comes right behind the instruction, whoever executed it.
fn step() -> Outcome {
    const TF: u64 = 1 << 8;
    // The first two fill the step that POPF itself is not, and the way into the code.
    let codes: [(&str, &[u8]); 6] = [
        ("nop", &[0x90]),
        ("cpuid", &[0x0f, 0xa2]),
        ("in al, 0x21", &[0xe4, 0x21]),
        ("out 0x80, al", &[0xe6, 0x80]),
        ("rdmsr", &[0x0f, 0x32]),
        ("mov ebp, [rdi]", &[0x8b, 0x2f]),
    ];
    let mut input = probe::pattern(1);
    input[0] = 0;
    input[2] = u64::from(cpu::msr::APIC_BASE);
    input[5] = io_apic::base() + io_apic::WINDOW;
    for (name, code) in codes {
        // POPF with TF as the first of the code, so that the instruction is the one that is stepped over.
        let mut all = [0x90_u8; 16];
        let set = [0x9c, 0x48, 0x81, 0x0c, 0x24, 0, 1, 0, 0, 0x9d];
        all[..10].copy_from_slice(&set);
        all[10..10 + code.len()].copy_from_slice(code);
        // SAFETY: the codes change registers only; TF goes with the trap.
        let result = unsafe { probe::execute(&all, &input, 0) };
        let Err(trap) = result else {
            check!(false, "{name}: no exception with {TF:#x}");
            return Ok(());
        };
        check_eq!(trap.vector, vector::DB, "{name}: the exception");
        check!(trap.address & 1 << 14 != 0, "{name}: DR6 is {:#x}", trap.address);
        let start = probe::slot();
        check_eq!(trap.rip - start, 10 + code.len() as u64, "{name}: bytes executed");
    }
    Ok(())
}

/// Exceptions that go to the guest without anybody in between.
fn exceptions() -> Outcome {
    let vector_of = |trap: Option<trap::Trap>| trap.map_or(u64::MAX, |trap| trap.vector);
    // SAFETY: each raises an exception and nothing else.
    unsafe {
        check_eq!(vector_of(trap::caught(|| asm!("ud2"))), vector::UD, "UD2");
        check_eq!(vector_of(trap::caught(|| asm!("int3"))), vector::BP, "INT3");
        let divided = trap::caught(
            || asm!("div {0:r}", in(reg) 0_u64, inout("rax") 1_u64 => _, inout("rdx") 0_u64 => _),
        );
        check_eq!(vector_of(divided), vector::DE, "DIV by zero");
        let wild = trap::caught(|| asm!("mov {0}, [{0}]", inout(reg) 1_u64 << 62 => _));
        check_eq!(vector_of(wild), vector::GP, "an address that is not canonical");
        let absent = trap::caught(|| asm!("mov {0}, [{0}]", inout(reg) 1_u64 << 46 => _));
        check_eq!(vector_of(absent), vector::PF, "an address that is not mapped");
        check_eq!(absent.map_or(0, |trap| trap.address), 1 << 46, "CR2");
        check_eq!(vector_of(trap::caught(|| asm!("int 0x03"))), vector::BP, "INT 3");
        check_eq!(vector_of(trap::caught(|| asm!(".byte 0xf1"))), vector::DB, "ICEBP");
    }
    Ok(())
}

/// STI holds interrupts off for one instruction, also if that one exits.
fn shadow() -> Outcome {
    static TAKEN_AT: AtomicU64 = AtomicU64::new(0);
    fn handle(_: u8) {
        TAKEN_AT.fetch_add(1, Relaxed);
    }
    turnstile_guests_x86_64::irq::set_handler(Some(handle));
    for count in 1..=100 {
        apic::send_to_self(0x61);
        let after: u64;
        // SAFETY: CPUID changes the registers named; the interrupt comes behind it.
        unsafe {
            asm!("push rbx", "xor eax, eax", "xor ecx, ecx", "sti", "cpuid", "nop", "cli", "pop rbx", "mov {}, [{}]",
                out(reg) after, in(reg) TAKEN_AT.as_ptr(), out("rax") _, out("rcx") _, out("rdx") _);
        }
        check_eq!(after, count, "interrupts behind CPUID in the shadow of STI");
    }
    Ok(())
}
