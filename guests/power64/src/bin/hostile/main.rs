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

pub use turnstile_guests_common::hostile::Tally;
use turnstile_guests_common::hostile::{self, Attack, Machine};
use turnstile_guests_power64::console::Console;
use turnstile_guests_power64::platform;
use turnstile_guests_power64::test::rest;
use turnstile_guests_power64::{boot, cpu, entry, irq, mtspr, options, println, timer};

entry!(main);

const MACHINE: Machine = Machine { rest, put_back, works: machine_works };

const ATTACKS: &[Attack] = &[
    Attack::new("hypercalls", calls::all),
    Attack::new("hypercalls-random", calls::random),
    Attack::new("system-calls", calls::levels),
    Attack::new("rtas", calls::services),
    Attack::new("rtas-blocks", calls::blocks),
    Attack::new("areas", areas::addresses),
    Attack::new("areas-moving", areas::moving),
    Attack::new("process-tables", areas::tables),
    Attack::new("specials-read", specials::read),
    Attack::new("specials-write", specials::write),
    Attack::new("machine-state", specials::machine_state),
    Attack::new("modes", specials::modes),
    Attack::new("invalidations", invalidations::all),
    Attack::new("doorbells", doorbells::all),
    Attack::new("doorbells-core", doorbells::core),
    Attack::new("stop", doorbells::stop),
    Attack::new("xive-pages", pages::sources),
    Attack::new("xive-presentation", pages::presentation),
    Attack::new("xive-calls", pages::calls),
    Attack::new("xive-storm", pages::storm),
    Attack::new("memory-outside", pages::outside),
    Attack::new("instructions", instructions::random),
    Attack::new("instructions-device", instructions::device),
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
    hostile::run(&mut Console, options::line(), &MACHINE, ATTACKS, fatal::ATTACKS);
}

/// Puts back what [`rest`] leaves.
fn put_back() {
    // The performance monitor rests.
    mtspr!(795, 0x8000_0000);
}

fn machine_works() -> bool {
    timer::arm(timer::now() + timer::ticks(100));
    irq::send(0);
    cpu::unmask();
    let came = timer::wait(1_000_000, || irq::count(irq::TIMER) == 1 && irq::count(irq::IPI) == 1);
    cpu::mask();
    came
}
