// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Vector registers and what else a hypervisor may touch, over exits of each kind.

use turnstile_guests_x86_64::exception::vector;
use turnstile_guests_x86_64::probe::{self, Registers};
use turnstile_guests_x86_64::state::{self, xsave};
use turnstile_guests_x86_64::test::{Outcome, Test};
use turnstile_guests_x86_64::{
    apic, check, check_eq, cpu, io_apic, kvm, pic, port, read_control, skip, timer, trap, write_control,
};

use crate::log;

pub const TESTS: &[Test] = &[
    Test { name: "state-exits", run: exits },
    Test { name: "state-registers", run: registers },
    Test { name: "state-xcr0", run: xcr0 },
    Test { name: "state-fp-traps", run: fp_traps },
];

/// Nothing changes by exits of any kind, an interrupt of the timer among them.
fn exits() -> Outcome {
    for (round, state) in (1_u64..).zip(state::ALL.iter().filter(|state| (state.exists)())) {
        let seed = round << 8 | 1;
        (state.fill)(seed);
        log::begin();
        timer::arm(0x51, timer::now() + timer::ticks(500));
        let _ = trap::caught(|| _ = kvm::hypercall(0x7fff, [0; 4]));
        cpu::cpuid(1, 0);
        port::read8(pic::MASK);
        io_apic::read(io_apic::VERSION);
        apic::send_to_self(0x61);
        check!(log::wait_for(2), "{}: interrupts do not come", state.name);
        check!((state.holds)(seed), "{} has changed", state.name);
    }
    Ok(())
}

/// All general registers and flags but those that the instruction is about.
fn registers() -> Outcome {
    let mut input = probe::pattern(11);
    let keep = |name: &str, code: &[u8], input: &Registers, changed: &[usize]| {
        for flags in [0x1, 0x8d4, 0xcd5] {
            // SAFETY: reads only.
            match unsafe { probe::execute(code, input, flags) } {
                Ok((after, flags_after)) => {
                    check_eq!(flags_after & 0xcd5, flags, "{name}: the flags");
                    for index in (0..15).filter(|index| !changed.contains(index)) {
                        check_eq!(after[index], input[index], "{name}: register {index}");
                    }
                }
                Err(trap) => check!(crate::is_bare(), "{name}: {trap}"),
            }
        }
        Ok(())
    };
    input[0] = 0x8000_0000;
    keep("cpuid", &[0x0f, 0xa2], &input, &[0, 1, 2, 3])?;
    input[0] = 0x7fff;
    keep("vmmcall", &[0x0f, 0x01, 0xd9], &input, &[0])?;
    keep("in al, 0x21", &[0xe4, 0x21], &input, &[0])?;
    keep("in eax, 0x80", &[0xe5, 0x80], &input, &[0])?;
    input[2] = u64::from(cpu::msr::APIC_BASE);
    keep("rdmsr", &[0x0f, 0x32], &input, &[0, 3])?;
    input[5] = io_apic::base() + io_apic::WINDOW;
    keep("mov ebp, [rdi]", &[0x8b, 0x2f], &input, &[6])?;
    keep("mov r14d, [rdi]", &[0x44, 0x8b, 0x37], &input, &[13])
}

fn xcr0() -> Outcome {
    if !xsave::exists() {
        skip!("no AVX");
    }
    xsave::enable();
    let [_, _, ecx, _] = cpu::cpuid(1, 0);
    check!(ecx >> 27 & 1 != 0, "CPUID does not show OSXSAVE");
    for bad in [0, 2, 4, 5, 1 << 63] {
        let trap = trap::caught(|| xsave::set_xcr0(bad));
        check!(trap.is_some_and(|trap| trap.vector == vector::GP), "XCR0 takes {bad:#x}");
    }
    xsave::set_xcr0(3);
    let [_, small, ..] = cpu::cpuid(0xd, 0);
    xsave::set_xcr0(7);
    let [_, large, ..] = cpu::cpuid(0xd, 0);
    check_eq!(small, 576, "bytes that CPUID tells for XCR0 3");
    check_eq!(large, 832, "bytes that CPUID tells for XCR0 7");
    check_eq!(xsave::xcr0(), 7, "XCR0");
    write_control!("cr4", read_control!("cr4") & !(1 << 18));
    let trap = trap::caught(|| _ = xsave::xcr0());
    check!(trap.is_some_and(|trap| trap.vector == vector::UD), "XGETBV works without OSXSAVE");
    let [_, _, ecx, _] = cpu::cpuid(1, 0);
    check!(ecx >> 27 & 1 == 0, "CPUID shows OSXSAVE");
    Ok(())
}

/// CR0.TS is the guest's own.
fn fp_traps() -> Outcome {
    let cr0 = read_control!("cr0");
    write_control!("cr0", cr0 | 8);
    // SAFETY: FNSTCW stores two bytes to the stack below what is used.
    let trap = trap::caught(|| unsafe {
        core::arch::asm!("sub rsp, 256", "fnstcw [rsp]", "add rsp, 256");
    });
    write_control!("cr0", cr0);
    check!(trap.is_some_and(|trap| trap.vector == vector::NM), "no #NM with CR0.TS");
    check_eq!(read_control!("cr0"), cr0, "CR0");
    Ok(())
}
