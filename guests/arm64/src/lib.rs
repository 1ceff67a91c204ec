// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The runtime of the bare-metal guests: what measures, tests or attacks a hypervisor from inside.
//!
//! A guest is entered by the Linux arm64 boot protocol (EL1, MMU off, device tree in x0), takes every
//! address from that device tree, talks through its UART and ends by PSCI SYSTEM_OFF. Lines that a
//! program is to read begin with `@`.
//!
//! The code runs on SP_EL0 (PSTATE.SP = 0) and takes its exceptions on SP_EL1, so that a test may ruin
//! its stack pointer and still get its exception. Arm ARM: DDI 0487; PSCI: DEN 0022; SMCCC: DEN 0028.
#![no_std]

pub use turnstile_guests_common::{check, check_eq, entry, options, print, println, random, skip};

pub mod bench;
pub mod boot;
pub mod console;
pub mod cpu;
pub mod crash;
pub mod exception;
pub mod frame;
pub mod gic;
pub mod irq;
pub mod mmio;
pub mod mmu;
pub mod patch;
pub mod pci;
pub mod platform;
pub mod probe;
pub mod psci;
pub mod registers;
pub mod smp;
pub mod state;
pub mod test;
pub mod timer;
pub mod trap;
pub mod xen;

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    println!("@error panic: {info}");
    psci::system_off()
}
