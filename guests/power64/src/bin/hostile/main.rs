// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Attacks the hypervisor with whatever an operating system can do, and survives it.
//!
//! Options: `attack=NAME` (several by commas; all that are survivable by default), `seed=`, `stride=` (take each
//! n-th number only), `bare` (QEMU's own partition below: leaves out what would harm the emulator itself), `list`. After
//! each attack timer and interrupts are tried. The fatal attacks, which are meant to end this machine, are only done by
//! name.
#![no_std]
#![no_main]

mod areas;
mod calls;
mod doorbells;
mod fatal;
mod instructions;
mod invalidations;
mod pages;
mod specials;

use turnstile_guests_power64::test::rest;
use turnstile_guests_power64::{boot, cpu, entry, irq, mtspr, options, platform, println, timer};

entry!(main);

/// What an attack counted.
#[derive(Default)]
pub struct Tally {
    /// Things tried.
    pub tried: u64,
    /// Of them, those that were refused: by an exception or a status.
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
    Attack { name: "hypercalls", run: calls::all },
    Attack { name: "hypercalls-random", run: calls::random },
    Attack { name: "system-calls", run: calls::levels },
    Attack { name: "rtas", run: calls::services },
    Attack { name: "rtas-blocks", run: calls::blocks },
    Attack { name: "areas", run: areas::addresses },
    Attack { name: "areas-moving", run: areas::moving },
    Attack { name: "process-tables", run: areas::tables },
    Attack { name: "specials-read", run: specials::read },
    Attack { name: "specials-write", run: specials::write },
    Attack { name: "machine-state", run: specials::machine_state },
    Attack { name: "modes", run: specials::modes },
    Attack { name: "invalidations", run: invalidations::all },
    Attack { name: "doorbells", run: doorbells::all },
    Attack { name: "doorbells-core", run: doorbells::core },
    Attack { name: "stop", run: doorbells::stop },
    Attack { name: "xive-pages", run: pages::sources },
    Attack { name: "xive-presentation", run: pages::presentation },
    Attack { name: "xive-calls", run: pages::calls },
    Attack { name: "xive-storm", run: pages::storm },
    Attack { name: "memory-outside", run: pages::outside },
    Attack { name: "instructions", run: instructions::random },
    Attack { name: "instructions-device", run: instructions::device },
];

/// Whether no hypervisor of ours is expected below.
pub fn is_bare() -> bool {
    options::get("bare").is_some()
}

/// The option `stride=`.
pub fn stride() -> u64 {
    options::number("stride", 1).max(1)
}

/// Memory that nothing of this program is in: attacks that write write here. A mebibyte.
pub fn scratch() -> u64 {
    boot::image().1.next_multiple_of(16 << 20)
}

/// Lets a wait that an attack may begin end soon.
pub fn end_waits() {
    timer::arm(timer::now() + timer::ticks(200));
}

fn main() {
    println!("@boot hostile");
    platform::report();
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
    // The performance monitor rests.
    mtspr!(795, 0x8000_0000);
    rest();
    println!("@attack {name} tried={} trapped={}", tally.tried, tally.trapped);
    if !machine_works() {
        println!("@error interrupts do not work after {name}");
    }
    rest();
}

fn machine_works() -> bool {
    timer::arm(timer::now() + timer::ticks(100));
    irq::send(0);
    cpu::unmask();
    let came = timer::wait(1_000_000, || irq::count(irq::TIMER) == 1 && irq::count(irq::IPI) == 1);
    cpu::mask();
    came
}
