// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Special-purpose registers, the machine state, and where interrupts are taken.

use turnstile_guests_power64::cpu::{self, msr};
use turnstile_guests_power64::random;
use turnstile_guests_power64::{boot, exception, hcall, println, probe, timer, trap};

use crate::{Tally, stride};

/// The number as instructions have it: two halves, exchanged.
fn field(number: u32) -> u32 {
    (number & 0x1f) << 16 | (number >> 5) << 11
}

/// The hypervisor's own: reading or writing one of them without an exception is a hole (Power ISA 3.0B Book III, section 4.4.4).
/// LPCR, LPIDR, HSPRG0, HSPRG1, HSRR0, HSRR1, HDEC, PTCR, HFSCR, AMOR, HRMOR.
const HYPERVISOR: [u32; 11] = [318, 319, 304, 305, 314, 315, 310, 464, 190, 349, 313];

/// Those that this program runs on: SPRG0 to SPRG3, save/restore, decrementer.
fn is_own(number: u32) -> bool {
    matches!(number, 272..=275 | 26 | 27 | 22)
}

/// Every number is read.
pub fn read(tally: &mut Tally) {
    for number in (0..1024).step_by(stride() as usize) {
        // SAFETY: r3 is for this.
        let result = unsafe { probe::execute(&[0x7c60_02a6 | field(number)], &probe::pattern(1)) };
        tally.add(result.is_err());
        if result.is_ok() && HYPERVISOR.contains(&number) {
            println!("@error register {number} of the hypervisor can be read");
        }
    }
}

/// Every number is written, with values of all kinds; what had a value gets it back.
pub fn write(tally: &mut Tally) {
    let mut random = random::stream(20);
    for number in (0..1024).step_by(stride() as usize).filter(|number| !is_own(*number)) {
        // SAFETY: as above.
        let before = unsafe { probe::execute(&[0x7c60_02a6 | field(number)], &probe::pattern(1)) };
        for _ in 0..8 {
            let mut input = probe::pattern(2);
            input[3] = random.special();
            // SAFETY: interrupts are masked, translation is off: what this program runs on is not among the numbers.
            let result = unsafe { probe::execute(&[0x7c60_03a6 | field(number)], &input) };
            tally.add(result.is_err());
            if result.is_ok() && HYPERVISOR.contains(&number) {
                println!("@error register {number} of the hypervisor can be written");
            }
            crate::end_waits();
        }
        if let Ok(before) = before {
            let mut input = probe::pattern(2);
            input[3] = before[3];
            // SAFETY: as above.
            let _ = unsafe { probe::execute(&[0x7c60_03a6 | field(number)], &input) };
        }
    }
}

/// Any machine state that keeps 64-bit mode, this byte order and no translation, by mtmsrd and rfid: an exit and an exception
/// follow.
pub fn machine_state(tally: &mut Tally) {
    let mut random = random::stream(21);
    // Single steps and branch traces are exceptions, which are caught; interrupts stay masked.
    let kept = msr::EE | msr::IR | msr::DR | msr::LE | msr::SF | msr::PR;
    for _ in 0..4000 / stride() {
        let value = random.special() & !kept | msr::LE | msr::SF;
        let before = cpu::msr();
        let trap = trap::caught(|| {
            cpu::set_msr(value);
            hcall::call(hcall::NOTHING, [0; 4]);
            if cpu::msr() & msr::HV != 0 {
                println!("@error the hypervisor's state can be reached by {value:#x}");
            }
            // SAFETY: goes on behind itself, with any state.
            unsafe {
                core::arch::asm!("bcl 20, 31, 2f", "2:", "mflr 3", "addi 3, 3, 20", "mtspr 26, 3", "mtspr 27, 4", "rfid",
                    in("r4") value, out("r3") _, out("lr") _);
            }
            hcall::call(hcall::NOTHING, [0; 4]);
        });
        cpu::set_msr(before);
        tally.add(trap.is_some());
    }
    problem_state(tally);
}

/// Instructions in problem state, without translation of it: a fetch that faults, for ever if the hypervisor is wrong.
fn problem_state(tally: &mut Tally) {
    for state in [msr::PR, msr::PR | msr::EE, msr::PR | msr::IR, msr::PR | msr::DR, msr::PR | msr::HV] {
        crate::end_waits();
        exception::write_instruction(probe::slot(), 0x4400_0022);
        exception::write_instruction(probe::slot() + 4, 0x7fe0_0008);
        let trap = trap::caught(|| {
            // SAFETY: the exception's handler comes back by a stack of its own.
            unsafe {
                core::arch::asm!("mtspr 26, {0}", "mtspr 27, {1}", "rfid", in(reg) probe::slot(),
                    in(reg) msr::USUAL | state, in("r3") hcall::CONFER, in("r4") u64::MAX);
            }
        });
        tally.add(trap.is_some());
        timer::disarm();
    }
}

/// Breakpoints and watchpoints by H_SET_MODE anywhere, the hypervisor's places among them, with exits behind.
pub fn modes(tally: &mut Tally) {
    let mut random = random::stream(22);
    let (start, end) = boot::image();
    for _ in 0..2000 / stride() {
        let value = match random.below(4) {
            0 => random.below(0x3000) & !3,
            1 => (start + random.below(end - start)) & !3,
            _ => random.special(),
        };
        let resource = 1 + random.below(2);
        // Any kind of match; privileges of the hypervisor among them.
        let status = hcall::call(hcall::SET_MODE, [0, resource, value | random.below(4), random.special()]);
        tally.add(status < 0);
        let _ = trap::caught(|| _ = hcall::call(hcall::NOTHING, [0; 4]));
        hcall::call(hcall::SET_MODE, [0, 1, 0, 0]);
        hcall::call(hcall::SET_MODE, [0, 2, 0, 0]);
    }
}
