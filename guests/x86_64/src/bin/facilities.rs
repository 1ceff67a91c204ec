// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Looks whether anything of vector registers, debug registers and model-specific registers comes from somebody else:
//! at the start nothing is in them, later what this program has put there, through every kind of exit and while others
//! run on the same CPU.
//!
//! Options: `seed=` what is put there (a VM's own number), `rounds=` (20), `again`: resets instead of powering off,
//! `bare`: the machine has had firmware, so what is found at the start counts for nothing.
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use turnstile_guests_x86_64::exception::vector;
use turnstile_guests_x86_64::state::{self, Present, debug};
use turnstile_guests_x86_64::{
    apic, cpu, entry, io_apic, irq, kvm, options, pic, port, power, println, timer, trap,
};

entry!(main);

const PRESENT: Present = Present(&state::ALL);

const TIMER: u8 = 0x51;
const IPI: u8 = 0x61;

/// What DR0 watches: at the same address in each VM that runs this program.
static WATCHED: AtomicU64 = AtomicU64::new(0);

fn main() {
    pic::init();
    apic::init();
    timer::apic_ticks();
    let number = options::number("seed", 1);
    let bare = options::get("bare").is_some();
    let mut errors = 0;
    let mut report = |what: &str, name: &str, good: bool| {
        if !good {
            errors += 1;
            println!("@error {name}: {what}");
        }
    };
    // Debug exceptions of others must not come, from the first instruction on.
    report("a breakpoint that nobody has set", "debug", debug::touch(WATCHED.as_ptr() as u64).is_none());
    for state in PRESENT.wrong(0) {
        report("not as after a reset", state.name, bare);
    }
    println!("@boot facilities {PRESENT}");
    for round in 0..options::number("rounds", 20) {
        let seed = state::seed(number, round);
        PRESENT.fill(seed);
        for _ in 0..8 {
            exits();
        }
        for state in PRESENT.wrong(seed) {
            report("changed", state.name, false);
        }
        report("the breakpoint", "debug", watches());
    }
    if options::get("again").is_some() && errors == 0 {
        println!("@again");
        power::reset();
    }
    println!("@done facilities errors={errors}");
}

/// Leaves the guest in every way; the last one gives the CPU away, if there is somebody who wants it.
fn exits() {
    let _ = trap::caught(|| _ = kvm::hypercall(0x7fff, [0; 4]));
    cpu::cpuid(0, 0);
    port::read8(pic::MASK);
    io_apic::read(io_apic::VERSION);
    apic::send_to_self(IPI);
    cpu::take_interrupts();
    let count = irq::count(TIMER);
    timer::arm(TIMER, timer::now() + timer::ticks(200));
    while irq::count(TIMER) == count {
        cpu::wait();
    }
}

/// A breakpoint fires when it is armed, also behind exits, and not when it is not.
fn watches() -> bool {
    let address = WATCHED.as_ptr() as u64;
    let silent = debug::touch(address).is_none();
    debug::watch(address);
    exits();
    let fired = debug::touch(address).map(|trap| (trap.vector, trap.address & 0xf));
    debug::unwatch();
    WATCHED.fetch_add(1, Relaxed);
    silent && fired == Some((vector::DB, 1)) && debug::touch(address).is_none()
}
