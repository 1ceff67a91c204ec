// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The runtime of the bare-metal x86-64 guests: what measures, tests or attacks a hypervisor from inside.
//!
//! A guest is entered by PVH or multiboot in 32-bit mode, takes what it needs to know from the loader and ACPI, talks
//! through COM1 and ends by ACPI's S5. Lines that a program is to read begin with `@`.
//!
//! Names and sections are those of AMD's APM (24593, 24594) and, for the APIC, of Intel's SDM.
#![no_std]

pub use turnstile_guests_common::{check, check_eq, entry, options, print, println, random, skip};

pub mod acpi;
pub mod apic;
pub mod bench;
pub mod boot;
pub mod console;
pub mod cpu;
pub mod crash;
pub mod exception;
pub mod frame;
pub mod io_apic;
pub mod irq;
pub mod kvm;
pub mod mmio;
pub mod mmu;
pub mod pci;
pub mod pic;
pub mod pit;
pub mod platform;
pub mod port;
pub mod power;
pub mod probe;
pub mod pv_eoi;
pub mod smp;
pub mod state;
pub mod test;
pub mod timer;
pub mod trap;

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    println!("@error panic: {info}");
    power::off()
}
