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

pub use turnstile_guests_common::hostile::Tally;
use turnstile_guests_common::hostile::{self, Attack, Machine};
use turnstile_guests_x86_64::console::Console;
use turnstile_guests_x86_64::platform;
use turnstile_guests_x86_64::test::rest;
use turnstile_guests_x86_64::{apic, console, cpu, entry, exception, irq, options, println, timer};

entry!(main);

const MACHINE: Machine = Machine { rest, put_back, works: machine_works };

const ATTACKS: &[Attack] = &[
    Attack::of("registers", "msrs", msrs::ranges),
    Attack::of("registers", "msrs-random", msrs::random),
    Attack::of("registers", "cpuid", cpuids::all),
    Attack::of("places", "ports", io::ports),
    Attack::of("places", "ports-string", io::strings),
    Attack::of("places", "devices", io::devices),
    Attack::of("interrupts", "apic-page", interrupts::page),
    Attack::of("interrupts", "apic-msrs", interrupts::msrs),
    Attack::of("interrupts", "apic-icr", interrupts::commands),
    Attack::of("interrupts", "apic-base", interrupts::base),
    Attack::of("interrupts", "ioapic", interrupts::io_apic),
    Attack::of("interrupts", "storm", interrupts::storm),
    Attack::of("interrupts", "pv-addresses", paravirtual::addresses),
    Attack::of("interrupts", "pv-eoi", paravirtual::eoi),
    Attack::of("registers", "hypercalls", calls::hypercalls),
    Attack::of("registers", "svm", calls::svm),
    Attack::of("registers", "vectors", calls::vectors),
    Attack::of("registers", "user", calls::user),
    Attack::of("opcodes", "instructions", instructions::opcodes),
    Attack::of("opcodes", "prefixes", instructions::prefixes),
    Attack::of("places", "page-ends", instructions::page_ends),
    Attack::of("places", "fetch", instructions::fetch),
    Attack::of("registers", "control", control::registers),
    Attack::of("registers", "debug", control::debug),
    Attack::of("places", "page-tables", tables::broken),
    Attack::of("interrupts", "cpu-races", other_cpu::races),
    Attack::of("interrupts", "cpu-real-mode", other_cpu::real_mode),
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
    hostile::run(&mut Console, options::line(), &MACHINE, ATTACKS, fatal::ATTACKS);
}

/// Puts back what [`rest`] leaves.
fn put_back() {
    console::init();
    exception::init();
}

fn machine_works() -> bool {
    timer::arm(0x51, timer::now() + timer::ticks(100));
    apic::send_to_self(0x61);
    cpu::unmask();
    let came = timer::wait(1_000_000, || irq::count(0x51) == 1 && irq::count(0x61) == 1);
    cpu::mask();
    came
}
