// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hypervisor calls that only answer (LoPAR, chapter 14).

use turnstile_guests_power64::hcall::{self, call, call4, set_mode};
use turnstile_guests_power64::test::{Outcome, Test};
use turnstile_guests_power64::{
    check, check_eq, cpu, crash, irq, mfspr, mmio, println, probe, skip, smp, timer,
};

pub const TESTS: &[Test] = &[
    Test { name: "calls-characteristics", run: characteristics },
    Test { name: "calls-confer", run: confer },
    Test { name: "calls-unknown", run: unknown },
    Test { name: "calls-absent", run: absent },
    Test { name: "calls-prod", run: prod },
    Test { name: "calls-random", run: random },
    Test { name: "calls-set-mode", run: modes },
    Test { name: "calls-sprg0", run: sprg0 },
    Test { name: "calls-page", run: page },
    Test { name: "calls-registers", run: registers },
    Test { name: "calls-level", run: level },
];

fn confer() -> Outcome {
    if crate::is_bare() {
        skip!("QEMU's own H_CONFER has no status");
    }
    check_eq!(call(hcall::CONFER, [u64::MAX, 0, 0, 0]), hcall::SUCCESS, "to all");
    check_eq!(call(hcall::CONFER, [u64::from(smp::server(0)), 0, 0, 0]), hcall::SUCCESS, "to itself");
    check_eq!(call(hcall::CONFER, [0xdead, 0, 0, 0]), hcall::PARAMETER, "to nobody");
    Ok(())
}

/// Numbers that PAPR has not given: between, behind, not a multiple of four, of 32 bits and more.
fn unknown() -> Outcome {
    for number in
        [0x1000, 0xfffc, 0x0002, 0x00e1, 0xe0_0000_0000, u64::MAX, 0x8000_0000_0000_00e0, 0x100_0000_00e4]
    {
        check_eq!(call(number, [0; 4]), hcall::FUNCTION, "call {number:#x}");
    }
    Ok(())
}

/// Calls of hash tables and I/O memory that this machine does not have: H_FUNCTION, or no success in any case.
fn absent() -> Outcome {
    if crate::is_bare() {
        skip!("QEMU's own partition has them");
    }
    // H_REMOVE, H_ENTER, H_READ, H_GET_TCE, H_PUT_TCE, H_BULK_REMOVE, H_STUFF_TCE, H_REG_CRQ.
    for number in [0x04, 0x08, 0x0c, 0x1c, 0x20, 0x130, 0x138, 0xfc] {
        let status = call(number, [0x1000, 2, 3, 4]);
        check!(status < 0, "call {number:#x} answers {status}");
    }
    Ok(())
}

/// H_PROD is remembered: the next H_CEDE does not wait. The one after it does.
fn prod() -> Outcome {
    let server = u64::from(smp::server(0));
    check_eq!(call(hcall::PROD, [0xdead, 0, 0, 0]), hcall::PARAMETER, "H_PROD of nobody");
    check_eq!(call(hcall::PROD, [server, 0, 0, 0]), hcall::SUCCESS, "H_PROD of itself");
    if crate::is_bare() {
        skip!("QEMU's own H_CEDE forgets H_PROD");
    }
    let begin = timer::now();
    timer::arm(begin + timer::ticks(500_000));
    cpu::wait();
    check_eq!(irq::count(irq::TIMER), 0, "the decrementer had to end the first H_CEDE");
    timer::arm(timer::now() + timer::ticks(2000));
    // An emulator may show that it has expired a little before it raises the interrupt.
    while irq::count(irq::TIMER) == 0 && timer::now() < begin + timer::ticks(400_000) {
        cpu::wait();
    }
    check_eq!(irq::count(irq::TIMER), 1, "decrementer interrupts behind the second H_CEDE");
    Ok(())
}

fn random() -> Outcome {
    let (first, second) = (call4(hcall::RANDOM, [0; 4]), call4(hcall::RANDOM, [0; 4]));
    if first.0 == hcall::FUNCTION {
        skip!("not offered");
    }
    check_eq!(first.0, hcall::SUCCESS, "the status");
    check!(first.1[0] != second.1[0], "twice {:#x}", first.1[0]);
    Ok(())
}

/// Interrupts in this byte order are set; resources that do not exist are refused.
fn modes() -> Outcome {
    let set = |value, resource| call(hcall::SET_MODE, [value, resource, 0, 0]);
    check_eq!(set(set_mode::LITTLE_ENDIAN, set_mode::BYTE_ORDER), hcall::SUCCESS, "byte order");
    for (value, resource) in
        [(7, set_mode::BYTE_ORDER), (9, set_mode::TRANSLATION), (0, 77), (u64::MAX, u64::MAX)]
    {
        check!(set(value, resource) < 0, "value {value:#x} of resource {resource:#x} is taken");
    }
    check!(call(hcall::SET_MODE, [1, set_mode::BYTE_ORDER, 1, 1]) < 0, "values that must be zero are taken");
    Ok(())
}

/// H_SET_SPRG0 writes the register that this program may write itself.
fn sprg0() -> Outcome {
    for value in [0x1234_5678_9abc_def0, 0] {
        check_eq!(call(hcall::SET_SPRG0, [value, 0, 0, 0]), hcall::SUCCESS, "H_SET_SPRG0");
        check_eq!(mfspr!(272), value, "SPRG0");
    }
    Ok(())
}

/// H_PAGE_INIT clears a page or copies one, and nothing beside it.
fn page() -> Outcome {
    const ZERO: u64 = 1 << 15;
    const COPY: u64 = 1 << 14;
    const PAGE: u64 = 4096;
    let initialize = |flags, to, from| call(hcall::PAGE_INIT, [flags, to, from, 0]);
    let scratch = crate::scratch();
    for offset in (0..4 * PAGE).step_by(8) {
        mmio::write64(scratch + offset, offset | 1 << 63);
    }
    check_eq!(initialize(ZERO, scratch + PAGE, 0), hcall::SUCCESS, "clear");
    check_eq!(initialize(COPY, scratch + 2 * PAGE, scratch), hcall::SUCCESS, "copy");
    for offset in (0..4 * PAGE).step_by(8) {
        let wanted = match offset / PAGE {
            1 => 0,
            2 => (offset - 2 * PAGE) | 1 << 63,
            _ => offset | 1 << 63,
        };
        check_eq!(mmio::read64(scratch + offset), wanted, "at {offset:#x}");
    }
    for (flags, to, from) in [
        (ZERO, scratch + 8, 0),
        (ZERO, crash::outside(), 0),
        (COPY, scratch, crash::outside()),
        (COPY, scratch, scratch + 1),
        (ZERO | 1, scratch, 0),
    ] {
        check_eq!(initialize(flags, to, from), hcall::PARAMETER, "{flags:#x}, {to:#x}, {from:#x}");
    }
    Ok(())
}

/// R13 to R31 are kept by calls of each kind, and the others do not tell what the hypervisor has had in them.
fn registers() -> Outcome {
    for (round, number) in
        [hcall::CONFER, hcall::NOTHING, hcall::PROD, hcall::SET_MODE].into_iter().enumerate()
    {
        let mut input = probe::pattern(round as u64);
        input[3] = number;
        // For H_CONFER to nobody in particular; for the others a wrong argument.
        input[4] = u64::MAX;
        // SAFETY: a call changes volatile registers alone.
        let output = match unsafe { probe::execute(&[0x4400_0022], &input) } {
            Ok(output) => output,
            Err(trap) => {
                check!(false, "call {number:#x}: {trap}");
                return Ok(());
            }
        };
        for index in (1..=2).chain(13..32) {
            check_eq!(output[index], input[index], "call {number:#x}: r{index}");
        }
        if crate::is_bare() {
            continue;
        }
        for index in [0].into_iter().chain(5..13) {
            let value = output[index];
            let known = value == input[index] || value < 0x1_0000 || input.contains(&value);
            check!(known, "call {number:#x} leaves {value:#x} in r{index}");
        }
    }
    Ok(())
}

/// A system call of level 0 is the partition's own, and one of level 2 is no way out.
fn level() -> Outcome {
    // SAFETY: changes no registers but those of an exception.
    let trap = unsafe { probe::execute(&[0x4400_0002], &probe::pattern(1)) }.err();
    check_eq!(trap.map_or(0, |trap| trap.vector), 0xc00, "the vector of level 0");
    Ok(())
}

/// What the processor needs against side channels is told; what that is depends on the machine.
fn characteristics() -> Outcome {
    let (code, told) = hcall::call4(hcall::CPU_CHARACTERISTICS, [0; 4]);
    if crate::is_bare() && code != hcall::SUCCESS {
        skip!("not offered");
    }
    check_eq!(code, hcall::SUCCESS, "the answer");
    println!("@characteristics {:#x} {:#x}", told[0], told[1]);
    Ok(())
}
