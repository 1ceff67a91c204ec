// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exceptions that a partition takes itself, with what it is told about them (Power ISA 3.0B Book III, section 6.5).

use turnstile_guests_power64::cpu::{self, msr};
use turnstile_guests_power64::exception::vector;
use turnstile_guests_power64::test::{Outcome, Test};
use turnstile_guests_power64::{check, check_eq, hcall, probe, skip, smp, trap};

pub const TESTS: &[Test] = &[
    Test { name: "exceptions-illegal", run: illegal },
    Test { name: "exceptions-hypervisor", run: hypervisor },
    Test { name: "exceptions-trap", run: traps },
    Test { name: "exceptions-facilities", run: facilities },
    Test { name: "exceptions-problem-state", run: problem_state },
    Test { name: "exceptions-trace", run: trace },
    Test { name: "exceptions-reset", run: reset },
    Test { name: "exceptions-msr", run: machine_state },
];

/// SRR1 of a program interrupt.
const ILLEGAL: u64 = 1 << 19;
const PRIVILEGED: u64 = 1 << 18;
const TRAP: u64 = 1 << 17;

fn program(code: u32, reason: u64, name: &str) -> Outcome {
    // SAFETY: whatever it is, it changes a register or nothing.
    match unsafe { probe::execute(&[code], &probe::pattern(3)) } {
        Ok(_) => check!(false, "{name} is executed"),
        Err(trap) => {
            check_eq!(trap.vector, vector::PROGRAM, "{name}: the vector");
            check_eq!(trap.status & (ILLEGAL | PRIVILEGED | TRAP), reason, "{name}: the reason");
            check_eq!(trap.nip, probe::slot(), "{name}: the address");
        }
    }
    Ok(())
}

/// Words that are no instruction: the hypervisor gets them first (emulation assistance), and hands them on.
fn illegal() -> Outcome {
    program(0, ILLEGAL, "zero")?;
    program(0x0400_0000, ILLEGAL, "operation 1")?;
    program(0x7c00_07fe, ILLEGAL, "operation 31 with a number of nobody")?;
    program(0x4c00_0002, ILLEGAL, "operation 19 with a number of nobody")
}

/// Instructions and registers of the hypervisor. What QEMU takes for them is one of two reasons.
fn hypervisor() -> Outcome {
    let codes = [
        (0x7c60_03a6 | 0x1e << 16 | 9 << 11, "mtspr LPCR"),
        (0x7c60_02a6 | 0x1e << 16 | 9 << 11, "mfspr LPCR"),
        (0x7c60_03a6 | 0x1f << 16 | 9 << 11, "mtspr LPIDR"),
        (0x7c60_02a6 | 0x10 << 16 | 9 << 11, "mfspr HSPRG0"),
        (0x7c60_03a6 | 0x1d << 16 | 9 << 11, "mtspr AMOR"),
        (0x4c00_0224, "hrfid"),
        (0x7c00_199c, "msgsnd"),
        (0x7c00_19dc, "msgclr"),
    ];
    for (code, name) in codes {
        // SAFETY: if it were executed, it would be the hypervisor's mistake.
        match unsafe { probe::execute(&[code], &probe::pattern(4)) } {
            Ok(_) => check!(false, "{name} is executed"),
            Err(trap) => {
                check_eq!(trap.vector, vector::PROGRAM, "{name}: the vector");
                check!(trap.status & (ILLEGAL | PRIVILEGED) != 0, "{name}: SRR1 {:#x}", trap.status);
            }
        }
    }
    Ok(())
}

fn traps() -> Outcome {
    program(0x7fe0_0008, TRAP, "trap")
}

/// Floating point and vectors are off until the partition lets them in.
fn facilities() -> Outcome {
    cpu::set_msr(cpu::msr() & !(msr::FP | msr::VEC | msr::VSX));
    for (code, vector, name) in [
        (0xfc00_048e_u32, vector::FP, "mffs f0"),
        (0x1000_04c4, vector::VEC, "vxor v0, v0, v0"),
        (0xf000_04d0, vector::VSX, "xxlxor vs0, vs0, vs0"),
    ] {
        // SAFETY: changes a register that this program does not use.
        let trap = unsafe { probe::execute(&[code], &probe::pattern(5)) }.err();
        check_eq!(trap.map_or(0, |trap| trap.vector), vector, "{name}: the vector");
    }
    Ok(())
}

/// In problem state: privileged instructions, a hypervisor call, reads of time.
fn problem_state() -> Outcome {
    let run = |code: u32| {
        trap::caught(|| {
            turnstile_guests_power64::exception::write_instruction(probe::slot(), code);
            // A trap ends what comes back.
            turnstile_guests_power64::exception::write_instruction(probe::slot() + 4, 0x7fe0_0008);
            // SAFETY: the exception's handler comes back by the stack of its own.
            unsafe {
                core::arch::asm!("mtspr 26, {0}", "mtspr 27, {1}", "rfid", in(reg) probe::slot(),
                    in(reg) msr::USUAL | msr::PR | msr::IR | msr::DR, in("r3") hcall::CONFER, in("r4") u64::MAX);
            }
        })
    };
    if turnstile_guests_power64::mmu::init() != hcall::SUCCESS {
        skip!("no translation");
    }
    let got = run(0x6000_0000);
    // The pages are privileged ones: problem state cannot even fetch.
    check_eq!(got.map_or(0, |trap| trap.vector), vector::INSTRUCTION_STORAGE, "the vector of a fetch");
    Ok(())
}

/// A single step ends behind one instruction.
fn trace() -> Outcome {
    let before = cpu::msr();
    let trap = trap::caught(|| {
        // SAFETY: the exception's handler goes on with the machine state from before.
        unsafe { core::arch::asm!("mtmsrd {}", "nop", "nop", "nop", in(reg) before | msr::SE) };
    });
    let Some(trap) = trap else { skip!("QEMU does not step here") };
    check_eq!(trap.vector, vector::TRACE, "the vector");
    Ok(())
}

/// H_SIGNAL_SYS_RESET of this CPU itself.
fn reset() -> Outcome {
    use core::sync::atomic::Ordering::Relaxed;
    let before = cpu::this().resets.load(Relaxed);
    let status = hcall::call(hcall::SIGNAL_SYS_RESET, [u64::from(smp::server(0)), 0, 0, 0]);
    if status == hcall::FUNCTION {
        skip!("not offered");
    }
    check_eq!(status, hcall::SUCCESS, "the status");
    check_eq!(cpu::this().resets.load(Relaxed), before + 1, "system resets");
    check!(hcall::call(hcall::SIGNAL_SYS_RESET, [0xdead, 0, 0, 0]) < 0, "one of nobody succeeds");
    Ok(())
}

/// No way of writing the machine state gives the hypervisor's.
fn machine_state() -> Outcome {
    cpu::set_msr(cpu::msr() | msr::HV);
    check_eq!(cpu::msr() & msr::HV, 0, "HV after mtmsrd");
    // SAFETY: goes on behind itself.
    unsafe {
        core::arch::asm!("bcl 20, 31, 2f", "2:", "mflr 3", "addi 3, 3, 20", "mtspr 26, 3", "mtspr 27, 4", "rfid",
            in("r4") msr::USUAL | msr::HV, out("r3") _, out("lr") _);
    }
    check_eq!(cpu::msr() & msr::HV, 0, "HV after rfid");
    Ok(())
}
