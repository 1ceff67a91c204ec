// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Does to a hypervisor what a guest may do at its privilege level, and survives it.
//!
//! Options: `attack=NAME` (several by commas; all that are survivable by default), `seed=`, `stride=` (take each
//! n-th register offset and immediate only), `for=` (milliseconds of `gic-control`), `bare` (no hypervisor below: leaves
//! out what would harm the emulated machine itself), `list`. After each attack timer and SGIs are tried. The fatal
//! attacks, which are meant
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

use turnstile_guests::console::Console;
use turnstile_guests::platform;
use turnstile_guests::test::rest;
use turnstile_guests::timer::{self, Timer};
use turnstile_guests::{console, cpu, entry, gic, irq, mmu, options, println, psci};
pub use turnstile_guests_common::hostile::Tally;
use turnstile_guests_common::hostile::{self, Attack, Machine};

entry!(main);

const MACHINE: Machine = Machine { rest, put_back, works: machine_works };

const ATTACKS: &[Attack] = &[
    Attack::new("holes", access::holes),
    Attack::new("devices", access::devices),
    Attack::new("device-accesses", access::device_accesses),
    Attack::new("flash", access::flash),
    Attack::new("fetch", access::fetch),
    Attack::new("faults", access::faults),
    Attack::new("encodings", encodings::registers),
    Attack::new("system-instructions", encodings::instructions),
    Attack::new("hypercalls", instructions::hypercalls),
    Attack::new("traps", instructions::traps),
    Attack::new("wait", instructions::wait),
    Attack::new("stack", instructions::stack),
    Attack::new("gic-distributor", interrupts::distributor),
    Attack::new("gic-interface", interrupts::interface),
    Attack::new("gic-redistributors", interrupts::redistributors),
    Attack::new("gic-sgi", interrupts::sgis),
    Attack::new("gic-storm", interrupts::storm),
    Attack::new("gic-cpus", interrupts::cpus),
    Attack::new("gic-control", interrupts::control),
    Attack::new("psci-cpus", calls::cpu_races),
    Attack::new("calls", calls::all),
    Attack::new("page-tables", tables::broken),
    // Does not return when the machine really suspends: the rest goes on from there.
    Attack::new("suspend", calls::suspend),
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
    hostile::run(&mut Console, options::line(), &MACHINE, ATTACKS, fatal::ATTACKS);
}

/// Puts back what [`rest`] leaves.
fn put_back() {
    console::init();
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
    hostile::finish(&mut Console, &MACHINE, name, tally);
    hostile::end(&mut Console, 1);
    psci::system_off()
}
