// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Turnstile on Armv8-A: everything that touches the machine.
//!
//! The modules lie in layers: each uses those above it in this table, and none of those below it; nor is there a circle
//! between files.
//!
//! | module | what |
//! |---|---|
//! | [`cpu`] | instructions, registers (`regs`), with VHE and without (`mode`), the ground part of the per-CPU area (`area`) |
//! | [`board`] | device tree (`discover`), serial port, PSCI, power, what a CPU needs against speculation (`mitigation`) |
//! | [`memory`] | physical memory and the EL2 address space (`host`), guests' memory (`guest`, `demand`, `flash`), records of stolen time |
//! | [`irq`] | the physical GIC, its list registers, and which one this machine has |
//! | [`time`](mod@time) | the clock, and deadlines of a CPU |
//! | [`state`] | what a guest's state consists of: system registers, timers, FP and SVE, PMU, debug registers, keys; ID registers |
//! | [`vm`] | the virtual machine and its vCPUs: the objects, and how they reach each other; what exits ask of the hypervisor |
//! | [`vcpu`] | what is done with one vCPU: its exit frame, load and reset (`switch`), `facility`, `statistics` |
//! | [`sched`] | physical CPUs that vCPUs share: what a switch moves |
//! | [`exit`] | an exit, light and full (`vectors.S`, `guards.S`), and vCPUs that wait; what exits would do without the techniques (`naive`), only in images for ablation (feature `ablation`) |
//! | [`boot`] | from power-on to the hypervisor's main function (`boot.S`), the whole per-CPU area, the last words of the hypervisor (`fault`) |
//!
//! On the bare machine this crate is `no_std`; on the host it compiles with fakes in the place of system
//! registers ([`cpu::regs::fakes`]), so that exit handlers run in tests and their accesses are counted.
#![cfg_attr(target_os = "none", no_std)]

extern crate alloc;

pub mod board;
pub mod boot;
pub mod cpu;
pub mod exit;
pub mod irq;
pub mod memory;
pub mod sched;
pub mod service;
pub mod state;
#[cfg(test)]
mod tests;
pub mod time;
pub mod vcpu;
pub mod vm;

pub use turnstile_arch_common::monitor::CommonMonitor;
pub use turnstile_arch_common::time::Uptime;
pub use turnstile_arch_common::{console, crew, mmio, pci, phases, println};
pub use vm::monitor::{Monitor, set_monitor};

#[cfg(target_os = "none")]
core::arch::global_asm!(include_str!("boot/boot.S"));
#[cfg(target_os = "none")]
core::arch::global_asm!(include_str!("vcpu/switch.S"));
#[cfg(all(target_os = "none", not(feature = "ablation")))]
core::arch::global_asm!(
    include_str!("exit/vectors.S"),
    include_str!("service/entry.S"),
    include_str!("exit/guards.S")
);
// In one piece: the guarded and the naive vectors use macros and labels of the others.
#[cfg(all(target_os = "none", feature = "ablation"))]
core::arch::global_asm!(
    include_str!("exit/vectors.S"),
    include_str!("service/entry.S"),
    include_str!("exit/guards.S"),
    include_str!("exit/naive/naive.S")
);
