// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Registers over exits of each kind.

use turnstile_guests_power64::platform::platform;
use turnstile_guests_power64::probe::{self, Registers};
use turnstile_guests_power64::state::{self, sprs};
use turnstile_guests_power64::test::{Outcome, Test};
use turnstile_guests_power64::{check, check_eq, cpu, hcall, irq, mmio, skip, timer};

pub const TESTS: &[Test] = &[
    Test { name: "registers-state", run: kept },
    Test { name: "registers-device", run: device },
    Test { name: "registers-wait", run: waited },
];

fn exits() {
    hcall::call(hcall::CONFER, [u64::MAX, 0, 0, 0]);
    hcall::call(hcall::NOTHING, [0; 4]);
    if let Some(uart) = platform().uart {
        mmio::read8(uart.base + 7);
    }
    irq::send(0);
    timer::arm(timer::now() + timer::ticks(300));
    let before = irq::count(irq::TIMER);
    while irq::count(irq::TIMER) == before {
        cpu::wait();
    }
}

/// Vector-scalar and special-purpose registers.
fn kept() -> Outcome {
    for (round, state) in (1_u64..).zip(&state::ALL) {
        let seed = round << 8 | 1;
        (state.fill)(seed);
        for _ in 0..10 {
            exits();
        }
        let which = match state.name {
            "sprs" => sprs::first_wrong(&sprs::PLAIN, seed),
            "pmu" => sprs::first_wrong(&sprs::PMU, seed),
            _ => None,
        };
        check!((state.holds)(seed), "{} has changed {}", state.name, which.unwrap_or(""));
    }
    Ok(())
}

/// Loads and stores of a device, in each width and form: what they load goes to its register, all others stay.
fn device() -> Outcome {
    let Some(uart) = platform().uart else { skip!("no device in memory") };
    let scratch = uart.base + 7;
    mmio::write8(scratch, 0xa5);
    let one = |name: &str, code: u32, input: &Registers, changed: &[(usize, u64)]| {
        // SAFETY: accesses the device's scratch register.
        match unsafe { probe::execute(&[code], input) } {
            Ok(output) => {
                for index in 0..32 {
                    let wanted =
                        changed.iter().find(|(at, _)| *at == index).map_or(input[index], |(_, value)| *value);
                    check_eq!(output[index], wanted, "{name}: r{index}");
                }
            }
            Err(trap) => check!(false, "{name}: {trap}"),
        }
        Ok(())
    };
    let mut input = probe::pattern(6);
    input[5] = scratch;
    input[6] = 0;
    input[8] = scratch - 16;
    one("lbz r7, 0(r5)", 0x88e5_0000, &input, &[(7, 0xa5)])?;
    one("lbzx r7, r5, r6", 0x7ce5_30ae, &input, &[(7, 0xa5)])?;
    one("lbzu r7, 16(r8)", 0x8ce8_0010, &input, &[(7, 0xa5), (8, scratch)])?;
    input[7] = 0x5a;
    one("stb r7, 0(r5)", 0x98e5_0000, &input, &[])?;
    check_eq!(mmio::read8(scratch), 0x5a, "after stb");
    input[7] = 0x3c;
    one("stbx r7, r5, r6", 0x7ce5_31ae, &input, &[])?;
    check_eq!(mmio::read8(scratch), 0x3c, "after stbx");
    one("stbu r7, 16(r8)", 0x9ce8_0010, &input, &[(8, scratch)])
}

/// All that a function may rely on, over a wait.
fn waited() -> Outcome {
    for round in 0..20 {
        let mut input = probe::pattern(20 + round);
        input[3] = hcall::CEDE;
        // The interrupt's frame goes below it.
        input[1] = crate::scratch() + 0x8000;
        timer::arm(timer::now() + timer::ticks(200));
        // SAFETY: H_CEDE, then interrupts are masked again: li r3, 2; mtmsrd r3, 1.
        match unsafe { probe::execute(&[0x4400_0022, 0x3860_0002, 0x7c61_0164], &input) } {
            Ok(output) => {
                for index in (1..=2).chain(13..32) {
                    check_eq!(output[index], input[index], "r{index}");
                }
            }
            Err(trap) => check!(false, "{trap}"),
        }
    }
    Ok(())
}
