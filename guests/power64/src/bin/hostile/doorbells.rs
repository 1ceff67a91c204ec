// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Doorbells to threads that are not there or not this partition's, and instructions that stop a thread.

use turnstile_guests_power64::probe;
use turnstile_guests_power64::random;
use turnstile_guests_power64::{cpu, irq};

use crate::{Tally, end_waits, is_bare, stride};

/// msgsndp and msgclrp of r3.
const SEND: u32 = 0x7c00_191c;
const CLEAR: u32 = 0x7c00_195c;

fn execute(tally: &mut Tally, code: u32, value: u64) {
    let mut input = probe::pattern(value);
    input[3] = value;
    // The probe goes to the instruction by an indirect branch, which QEMU wants.
    // SAFETY: at most a doorbell comes, which is counted.
    tally.add(unsafe { probe::execute(&[code], &input) }.is_err());
    cpu::take_interrupts();
}

/// Privileged doorbells: types, threads, reserved bits.
pub fn all(tally: &mut Tally) {
    let mut random = random::stream(40);
    for thread in 0..128 {
        execute(tally, SEND, 5 << 27 | thread);
        execute(tally, CLEAR, 5 << 27 | thread);
    }
    for _ in 0..2000 / stride() {
        let value = if random.below(2) == 0 {
            random.below(32) << 27 | random.below(1 << 14)
        } else {
            random.special()
        };
        execute(tally, if random.below(2) == 0 { SEND } else { CLEAR }, value);
    }
    // Leaves no doorbell behind.
    execute(tally, CLEAR, 5 << 27);
    irq::reset_counts();
}

/// The hypervisor's doorbells, by which it wakes its CPUs: none may go out.
pub fn core(tally: &mut Tally) {
    for thread in 0..128 {
        for code in [0x7c00_199c, 0x7c00_19dc] {
            let before = tally.trapped;
            execute(tally, code, 5 << 27 | thread);
            if tally.trapped == before {
                turnstile_guests_power64::println!(
                    "@error a doorbell of the hypervisor, {code:#x}, can be sent"
                );
            }
        }
    }
    // msgsync.
    execute(tally, 0x7c00_06ec, 0);
}

/// stop, wait and the naps of older processors; the decrementer ends what waits.
pub fn stop(tally: &mut Tally) {
    if is_bare() {
        return;
    }
    for code in [0x4c00_02e4, 0x4c00_0364, 0x4c00_0324, 0x4c00_03a4, 0x4c00_03e4, 0x7c00_003c] {
        for _ in 0..20 / stride().min(20) {
            end_waits();
            execute(tally, code, 0);
        }
    }
}
