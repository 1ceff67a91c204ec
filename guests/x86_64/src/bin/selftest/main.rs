// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of what a guest may rely on: APIC, I/O APIC, the PC's devices, CPUID, MSRs, emulated instructions, CPUs, and KVM's
//! paravirtual interface.
//!
//! Options: `test=NAME` (or the part before a dash, or several by commas) selects, `list` only lists,
//! `bare` leaves out what only a hypervisor does, for a run on the emulated machine itself.
#![no_std]
#![no_main]

mod apic;
mod apic_interrupts;
mod cpuid;
mod cpus;
mod debug;
mod devices;
mod emulation;
mod io_apic;
mod ipis;
mod kvm;
mod log;
mod memory;
mod modes;
mod msrs;
mod nmi;
mod others;
mod port_io;
mod pv_eoi;
mod state;
mod timers;

use turnstile_guests_x86_64::{entry, options, platform, println, test};

entry!(main);

/// Whether no hypervisor is expected below.
fn is_bare() -> bool {
    options::get("bare").is_some()
}

fn main() {
    println!("@boot selftest");
    platform::report();
    test::run(&[
        cpuid::TESTS,
        msrs::TESTS,
        memory::TESTS,
        apic::TESTS,
        apic_interrupts::TESTS,
        modes::TESTS,
        timers::TESTS,
        io_apic::TESTS,
        devices::TESTS,
        emulation::TESTS,
        port_io::TESTS,
        state::TESTS,
        debug::TESTS,
        nmi::TESTS,
        cpus::TESTS,
        ipis::TESTS,
        kvm::TESTS,
        pv_eoi::TESTS,
    ]);
}
