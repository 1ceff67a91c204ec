// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Attacks the hypervisor with whatever an operating system can do, and survives it.
//!
//! Options: `attack=NAME` (several by commas, or a group's; all that are survivable by default), `seed=`, `stride=` (take each
//! n-th number only), `bare` (no hypervisor below: leaves out what would harm the emulated machine itself), `list`. After
//! each attack timer and interrupts are tried. The fatal attacks, which are meant to end this machine, are only done by
//! name.
#![no_std]
#![no_main]

mod calls;
mod control;
mod cpuids;
mod fatal;
mod instructions;
mod interrupts;
mod io;
mod msrs;
mod other_cpu;
mod paravirtual;
mod tables;

use turnstile_guests_x86_64::test::rest;
use turnstile_guests_x86_64::{apic, console, cpu, entry, exception, irq, options, platform, println, timer};

entry!(main);

/// What an attack counted.
#[derive(Default)]
pub struct Tally {
    /// Things tried.
    pub tried: u64,
    /// Of them, those that ended as an exception.
    pub trapped: u64,
}

impl Tally {
    /// Counts one thing.
    pub fn add(&mut self, trapped: bool) {
        self.tried += 1;
        self.trapped += u64::from(trapped);
    }
}

struct Attack {
    /// Those of a group are done together by its name.
    group: &'static str,
    name: &'static str,
    run: fn(&mut Tally),
}

const ATTACKS: &[Attack] = &[
    Attack { group: "registers", name: "msrs", run: msrs::ranges },
    Attack { group: "registers", name: "msrs-random", run: msrs::random },
    Attack { group: "registers", name: "cpuid", run: cpuids::all },
    Attack { group: "places", name: "ports", run: io::ports },
    Attack { group: "places", name: "ports-string", run: io::strings },
    Attack { group: "places", name: "devices", run: io::devices },
    Attack { group: "interrupts", name: "apic-page", run: interrupts::page },
    Attack { group: "interrupts", name: "apic-msrs", run: interrupts::msrs },
    Attack { group: "interrupts", name: "apic-icr", run: interrupts::commands },
    Attack { group: "interrupts", name: "apic-base", run: interrupts::base },
    Attack { group: "interrupts", name: "ioapic", run: interrupts::io_apic },
    Attack { group: "interrupts", name: "storm", run: interrupts::storm },
    Attack { group: "interrupts", name: "pv-addresses", run: paravirtual::addresses },
    Attack { group: "interrupts", name: "pv-eoi", run: paravirtual::eoi },
    Attack { group: "registers", name: "hypercalls", run: calls::hypercalls },
    Attack { group: "registers", name: "svm", run: calls::svm },
    Attack { group: "registers", name: "vectors", run: calls::vectors },
    Attack { group: "registers", name: "user", run: calls::user },
    Attack { group: "opcodes", name: "instructions", run: instructions::opcodes },
    Attack { group: "opcodes", name: "prefixes", run: instructions::prefixes },
    Attack { group: "places", name: "page-ends", run: instructions::page_ends },
    Attack { group: "places", name: "fetch", run: instructions::fetch },
    Attack { group: "registers", name: "control", run: control::registers },
    Attack { group: "registers", name: "debug", run: control::debug },
    Attack { group: "places", name: "page-tables", run: tables::broken },
    Attack { group: "interrupts", name: "cpu-races", run: other_cpu::races },
    Attack { group: "interrupts", name: "cpu-real-mode", run: other_cpu::real_mode },
];

/// Whether no hypervisor is expected below.
pub fn is_bare() -> bool {
    options::get("bare").is_some()
}

/// The option `stride=`.
pub fn stride() -> usize {
    options::number("stride", 1).max(1) as usize
}

fn main() {
    println!("@boot hostile");
    platform::report();
    if options::get("list").is_some() {
        ATTACKS.iter().for_each(|attack| println!("@list {} {}", attack.name, attack.group));
        fatal::ATTACKS.iter().for_each(|(name, _)| println!("@list {name} fatal"));
        return;
    }
    let wanted = options::get("attack").unwrap_or("all");
    let mut done = 0;
    for attack in ATTACKS {
        if wanted != "all" && !wanted.split(',').any(|name| [attack.name, attack.group].contains(&name)) {
            continue;
        }
        rest();
        println!("@attack {}", attack.name);
        let mut tally = Tally::default();
        (attack.run)(&mut tally);
        finish(attack.name, &tally);
        done += 1;
    }
    for (name, run) in fatal::ATTACKS {
        if wanted.split(',').any(|wanted| wanted == *name) {
            rest();
            println!("@attack {name}");
            run();
            println!("@error attack {name} was survived");
            done += 1;
        }
    }
    println!("@done attacks={done} survived");
}

/// Puts everything back, prints what an attack counted, and tries whether interrupts still work.
fn finish(name: &str, tally: &Tally) {
    console::init();
    exception::init();
    rest();
    println!("@attack {name} tried={} trapped={}", tally.tried, tally.trapped);
    if !machine_works() {
        println!("@error interrupts do not work after {name}");
    }
    rest();
}

fn machine_works() -> bool {
    timer::arm(0x51, timer::now() + timer::ticks(100));
    apic::send_to_self(0x61);
    cpu::unmask();
    let came = timer::wait(1_000_000, || irq::count(0x51) == 1 && irq::count(0x61) == 1);
    cpu::mask();
    came
}
