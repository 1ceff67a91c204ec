// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The runtime of the bare-metal POWER guests: what measures, tests or attacks a hypervisor from inside.
//!
//! A guest is a PAPR partition without an operating system: it takes what it needs to know from the device tree, talks and
//! ends by hypervisor calls and RTAS, and runs in real mode but where it tries translation. Lines that a program is to
//! read begin with `@`.
//!
//! Names and sections are those of the Power ISA 3.0B and of LoPAR (the public PAPR).
#![no_std]

pub use turnstile_guests_common::{check, check_eq, entry, options, print, println, random, skip};

pub mod bench;
pub mod boot;
pub mod console;
pub mod cpu;
pub mod crash;
pub mod events;
pub mod exception;
pub mod frame;
pub mod hcall;
pub mod irq;
pub mod ledger;
pub mod mmio;
pub mod mmu;
pub mod pci;
pub mod platform;
pub mod power;
pub mod probe;
pub mod rtas;
pub mod smp;
pub mod state;
pub mod test;
pub mod timer;
pub mod trap;
pub mod turns;
pub mod xics;
pub mod xive;

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    println!("@error panic: {info}");
    power::give_up()
}
