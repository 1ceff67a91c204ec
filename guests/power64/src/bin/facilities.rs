// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Looks whether anything of general, vector-scalar and special-purpose registers comes from somebody else: at the start
//! nothing is in the second, later in all of them what this program has put there, through every kind of exit and while others
//! run on the same CPU.
//!
//! Options: `seed=` what is put there (a VM's own number), `rounds=` (20), `again`: reboots instead of powering off,
//! `bare`: the machine has had firmware, so what is found at the start counts for nothing.
#![no_std]
#![no_main]

use turnstile_guests_power64::platform::platform;
use turnstile_guests_power64::state::{self, Present, numbers, sprs};
use turnstile_guests_power64::{
    boot, cpu, crash, entry, hcall, irq, mmio, options, power, println, probe, timer, trap,
};

entry!(main);

const PRESENT: Present = Present(&state::ALL);

fn main() {
    irq::init();
    let number = options::number("seed", 1);
    let bare = options::get("bare").is_some();
    let mut errors = 0;
    for state in PRESENT.wrong(0).filter(|_| !bare) {
        errors += 1;
        println!("@error {}: not as after a reset {:?}", state.name, numbers::first_wrong(0));
    }
    println!("@boot facilities {PRESENT}");
    for round in 0..options::number("rounds", 20) {
        let seed = state::seed(number, round);
        // First, for it uses one of the other registers.
        if let Some(index) = first_general(seed) {
            errors += 1;
            println!("@error general: changed r{index}");
        }
        PRESENT.fill(seed);
        for _ in 0..8 {
            exits();
        }
        for state in PRESENT.wrong(seed) {
            errors += 1;
            let which = sprs::first_wrong(&sprs::PLAIN, seed).unwrap_or("");
            println!("@error {}: changed {which} {:?}", state.name, numbers::first_wrong(seed));
        }
    }
    if options::get("again").is_some() && errors == 0 {
        println!("@again");
        power::reset();
    }
    println!("@done facilities errors={errors}");
}

/// Waits with a pattern in all general registers; returns the first of those that a wait keeps and that has changed.
fn first_general(seed: u64) -> Option<usize> {
    let mut input = probe::pattern(seed);
    input[3] = hcall::CEDE;
    // The interrupt's frame goes below it.
    input[1] = boot::image().1 + (1 << 20);
    timer::arm(timer::now() + timer::ticks(200));
    // SAFETY: H_CEDE, then interrupts are masked again: li r3, 2; mtmsrd r3, 1.
    match unsafe { probe::execute(&[0x4400_0022, 0x3860_0002, 0x7c61_0164], &input) } {
        Ok(output) => (1..=2).chain(13..32).find(|index| output[*index] != input[*index]),
        Err(_) => Some(0),
    }
}

/// Leaves the guest in every way; the last one gives the CPU away, if there is somebody who wants it.
fn exits() {
    hcall::call(hcall::CONFER, [u64::MAX, 0, 0, 0]);
    hcall::call(hcall::NOTHING, [0; 4]);
    if let Some(uart) = platform().uart {
        mmio::read8(uart.base + 7);
    }
    // Changes DAR and DSISR, which the handler of the exception reads; they are put back.
    let kept = [turnstile_guests_power64::mfspr!(19), turnstile_guests_power64::mfspr!(18)];
    let _ = trap::caught(|| _ = mmio::read64(crash::outside()));
    turnstile_guests_power64::mtspr!(19, kept[0]);
    turnstile_guests_power64::mtspr!(18, kept[1]);
    irq::send(0);
    cpu::take_interrupts();
    let count = irq::count(irq::TIMER);
    timer::arm(timer::now() + timer::ticks(200));
    while irq::count(irq::TIMER) == count {
        cpu::wait();
    }
}
