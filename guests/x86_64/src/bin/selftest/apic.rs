// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The local APIC, as x2APIC if the machine has it: its registers.

use turnstile_guests_x86_64::apic::{self, icr, register};
use turnstile_guests_x86_64::cpu::{self, msr};
use turnstile_guests_x86_64::exception::vector;
use turnstile_guests_x86_64::test::{Outcome, Test};
use turnstile_guests_x86_64::{check, check_eq, probe, read_control, skip, trap, write_control};

use crate::log;

pub const TESTS: &[Test] = &[
    Test { name: "apic-identity", run: identity },
    Test { name: "apic-reset", run: reset },
    Test { name: "apic-registers", run: registers },
    Test { name: "apic-x2apic-faults", run: x2apic_faults },
    Test { name: "apic-cr8-faults", run: cr8_faults },
    Test { name: "apic-disabled", run: disabled },
    Test { name: "apic-illegal-vector", run: illegal_vector },
];

fn identity() -> Outcome {
    check_eq!(u64::from(apic::id()), cpu::initial_apic_id(), "the identifier");
    let version = apic::read(register::VERSION);
    check!((0x10..0x20).contains(&(version & 0xff)), "the version is {version:#x}");
    check!((version >> 16 & 0xff) >= 3, "the version {version:#x} has fewer than 4 local vectors");
    let base = cpu::read_msr(msr::APIC_BASE);
    check!(base & 1 << 8 != 0, "APIC_BASE {base:#x} does not say that this is the boot CPU");
    check_eq!(base & 0xf_ffff_f000, apic::PAGE, "the page's address");
    Ok(())
}

/// After it was switched off and on again, all registers are as after a reset.
fn reset() -> Outcome {
    if crate::is_bare() {
        skip!("QEMU keeps registers");
    }
    apic::write(register::TPR, 0x70);
    apic::send_to_self(0x61);
    let base = cpu::read_msr(msr::APIC_BASE);
    cpu::write_msr(msr::APIC_BASE, base & !0xc00);
    cpu::write_msr(msr::APIC_BASE, base & !0x400 | 0x800);
    cpu::write_msr(msr::APIC_BASE, base);
    check_eq!(apic::read(register::TPR), 0, "TPR");
    check_eq!(apic::read(register::SVR), 0xff, "SVR");
    check_eq!(apic::read(register::LVT_TIMER), apic::MASKED, "the timer's vector");
    check_eq!(apic::read(register::LVT_LINT0), apic::MASKED, "LINT0's vector");
    check_eq!(apic::read(register::TIMER_INITIAL), 0, "the timer's count");
    check!(!apic::bit(register::IRR, 0x61), "an interrupt is pending");
    Ok(())
}

fn registers() -> Outcome {
    for value in [0, 0x2f, 0xff] {
        apic::write(register::TPR, value);
        check_eq!(apic::read(register::TPR), value, "TPR");
    }
    for entry in [register::LVT_TIMER, register::LVT_LINT0, register::LVT_LINT1, register::LVT_ERROR] {
        apic::write(entry, apic::MASKED | 0x7b);
        check_eq!(apic::read(entry), apic::MASKED | 0x7b, "the local vector {entry:#x}");
    }
    for divide in [0, 3, 8, 0xb] {
        apic::write(register::TIMER_DIVIDE, divide);
        check_eq!(apic::read(register::TIMER_DIVIDE), divide, "the timer's divider");
    }
    apic::write(register::SVR, 0x1ef);
    check_eq!(apic::read(register::SVR) & 0x1ff, 0x1ef, "SVR");
    Ok(())
}

/// Reserved bits, and registers that are only read, only written, or absent.
fn x2apic_faults() -> Outcome {
    if crate::is_bare() {
        skip!("QEMU takes more");
    }
    if !apic::is_x2apic() {
        skip!("no x2APIC");
    }
    let is_gp =
        |trap: Option<trap::Trap>| trap.is_some_and(|trap| trap.vector == vector::GP && trap.error == 0);
    for number in [0x800, 0x801, 0x80b, 0x80e, 0x831, 0x83f, 0x840, 0x8ff] {
        let trap = trap::caught(|| _ = cpu::read_msr(number));
        check!(is_gp(trap), "RDMSR of {number:#x} is no #GP");
    }
    for number in [0x802, 0x803, 0x80a, 0x80d, 0x80e, 0x810, 0x820, 0x831, 0x839, 0x840, 0x8ff] {
        let trap = trap::caught(|| cpu::write_msr(number, 0));
        check!(is_gp(trap), "WRMSR of {number:#x} is no #GP");
    }
    for (number, value) in
        [(0x808, 0x100), (0x80b, 1), (0x828, 1), (0x832, 1 << 63), (0x83f, 0x161), (0x838, 1 << 32)]
    {
        let trap = trap::caught(|| cpu::write_msr(number, value));
        check!(is_gp(trap), "WRMSR of {value:#x} to {number:#x} is no #GP");
    }
    Ok(())
}

/// What CR8 does not take, and what it takes from each register.
fn cr8_faults() -> Outcome {
    if crate::is_bare() {
        skip!("QEMU takes reserved bits");
    }
    let before: u64 = read_control!("cr8");
    for bad in [1_u64 << 4, 1 << 63] {
        let trap = trap::caught(|| write_control!("cr8", bad));
        check!(trap.is_some_and(|trap| trap.vector == vector::GP), "CR8 takes {bad:#x}");
    }
    check_eq!(read_control!("cr8"), before, "CR8");
    let mut input = probe::pattern(3);
    for register in [0, 3, 5, 8, 15_u8] {
        // RSP is no register of the probe's; the numbers of the others are those of instructions.
        let place = [0, 2, 3, 1, 0, 6, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14][usize::from(register)];
        input[place] = 9;
        let code = [0x44 | register >> 3, 0x0f, 0x22, 0xc0 | register & 7];
        // SAFETY: changes CR8 only.
        let done = unsafe { probe::execute(&code, &input, 0) };
        let now: u64 = read_control!("cr8");
        write_control!("cr8", before);
        check!(done.is_ok(), "from register {register}: a fault");
        check_eq!(now, 9, "CR8 from register {register}");
        input[place] = !0;
    }
    Ok(())
}

/// The switch in SVR.
fn disabled() -> Outcome {
    if crate::is_bare() {
        skip!("QEMU lets the mask be taken away");
    }
    log::begin();
    apic::write(register::SVR, 0xff);
    check!(apic::read(register::LVT_TIMER) & apic::MASKED != 0, "the timer's vector is not masked");
    apic::write(register::LVT_TIMER, 0x55);
    check!(apic::read(register::LVT_TIMER) & apic::MASKED != 0, "the mask can be taken away");
    apic::write(register::SVR, 0x1ff);
    apic::send_to_self(0x61);
    check!(log::wait_for(1), "no interrupt after the APIC was switched on");
    Ok(())
}

fn illegal_vector() -> Outcome {
    if crate::is_bare() {
        skip!("QEMU sends it");
    }
    apic::write(register::ESR, 0);
    apic::send(apic::id(), icr::ASSERT | 5);
    apic::write(register::ESR, 0);
    let errors = apic::read(register::ESR);
    // Send illegal vector, receive illegal vector.
    check!(errors & 0x60 != 0, "ESR is {errors:#x}");
    apic::write(register::ESR, 0);
    check_eq!(apic::read(register::ESR), 0, "ESR afterwards");
    Ok(())
}
