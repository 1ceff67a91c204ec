// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Does to a hypervisor what a guest may do at its privilege level, and survives it.
//!
//! Options: `attack=NAME` (several by commas; all that are survivable by default), `seed=`, `stride=` (take each
//! n-th register offset and immediate only), `bare` (no hypervisor below: leaves out what would harm the
//! emulated machine itself), `list`. After each attack timer and SGIs are tried. The fatal attacks, which are meant
//! to end this machine, are only done by name.
#![no_std]
#![no_main]

mod access;
mod calls;
mod encodings;
mod fatal;
mod instructions;
mod interrupts;
mod tables;

use turnstile_guests::test::rest;
use turnstile_guests::timer::{self, Timer};
use turnstile_guests::{console, cpu, entry, gic, irq, mmu, options, platform, println, psci};

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
    name: &'static str,
    run: fn(&mut Tally),
}

const ATTACKS: &[Attack] = &[
    Attack { name: "holes", run: access::holes },
    Attack { name: "devices", run: access::devices },
    Attack { name: "device-accesses", run: access::device_accesses },
    Attack { name: "fetch", run: access::fetch },
    Attack { name: "faults", run: access::faults },
    Attack { name: "encodings", run: encodings::registers },
    Attack { name: "system-instructions", run: encodings::instructions },
    Attack { name: "hypercalls", run: instructions::hypercalls },
    Attack { name: "traps", run: instructions::traps },
    Attack { name: "wait", run: instructions::wait },
    Attack { name: "stack", run: instructions::stack },
    Attack { name: "gic-distributor", run: interrupts::distributor },
    Attack { name: "gic-interface", run: interrupts::interface },
    Attack { name: "gic-redistributors", run: interrupts::redistributors },
    Attack { name: "gic-sgi", run: interrupts::sgis },
    Attack { name: "gic-storm", run: interrupts::storm },
    Attack { name: "gic-cpus", run: interrupts::cpus },
    Attack { name: "psci-cpus", run: calls::cpu_races },
    Attack { name: "calls", run: calls::all },
    Attack { name: "page-tables", run: tables::broken },
    // Does not return when the machine really suspends: the rest goes on from there.
    Attack { name: "suspend", run: calls::suspend },
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
    mmu::enable();
    if options::get("list").is_some() {
        ATTACKS.iter().for_each(|attack| println!("@list {}", attack.name));
        fatal::ATTACKS.iter().for_each(|(name, _)| println!("@list {name} fatal"));
        return;
    }
    let wanted = options::get("attack").unwrap_or("all");
    let mut done = 0;
    for attack in ATTACKS {
        if wanted != "all" && !wanted.split(',').any(|name| name == attack.name) {
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
            println!("@attack {name}");
            run();
            println!("@error attack {name} was survived");
            done += 1;
        }
    }
    end(done);
}

fn end(done: u32) {
    println!("@done attacks={done} survived");
}

/// Puts everything back, prints what an attack counted, and tries whether interrupts still work.
pub fn finish(name: &str, tally: &Tally) {
    console::init();
    rest();
    println!("@attack {name} tried={} trapped={}", tally.tried, tally.trapped);
    let works = machine_works();
    if !works {
        println!("@error interrupts do not work after {name}");
    }
    rest();
}

fn machine_works() -> bool {
    for timer in [Timer::Virtual, Timer::Physical] {
        gic::enable(timer.intid());
        timer.set_compare(timer.now() + timer::ticks(100));
        timer.set_control(timer::ENABLE);
        let fired = timer::wait(1_000_000, || gic::acknowledge() == timer.intid());
        timer.set_control(0);
        if !fired {
            println!("  no interrupt of the {timer:?} timer");
            return false;
        }
        gic::end(timer.intid());
    }
    gic::enable(3);
    cpu::unmask_irq();
    gic::send_sgi(gic::sgi_value(3, cpu::affinity()));
    let arrived = timer::wait(1_000_000, || irq::count(3) == 1);
    cpu::mask_irq();
    arrived
}

/// Ends the run from a CPU that came back in another way than by returning.
pub fn end_elsewhere(name: &str, tally: &Tally) -> ! {
    finish(name, tally);
    end(1);
    psci::system_off()
}
