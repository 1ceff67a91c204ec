// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Turnstile on x86-64 with AMD SVM: everything that touches the machine.
//!
//! | file | what |
//! |---|---|
//! | `cpu` | instructions, registers, control blocks, the ground part of the per-CPU area |
//! | `board` | what machine this is, its serial port, powering it off, what CPUs need against speculation |
//! | `memory` | physical memory, the hypervisor's address space, nested page tables |
//! | `irq` | the machine's interrupts: when they are taken, kicks, the timer; and the interrupt controllers of a VM |
//! | `time` | the time stamp counter, the wall clock, deadlines |
//! | `state` | what a vCPU's state consists of |
//! | `vm` | the virtual machine and its vCPUs: the objects, posting, what exits ask of the hypervisor |
//! | `vcpu` | what is done with one vCPU: frame, switch, facilities, interrupts, KVM's interface, statistics |
//! | `sched` | physical CPUs that vCPUs share: switches |
//! | `exit` | the run loop, and exits: light and full |
//! | `boot` | from power-on to the hypervisor's main function; the last words |
//!
//! A file uses files of its own layer and of those above it in this table, and no two use each other.
//!
//! On the bare machine this crate is `no_std`; on the host it compiles with fakes in the place of registers
//! (`regs::fakes`), so that exit handlers run in tests and their accesses are counted.
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
pub mod time;
pub mod vcpu;
pub mod vm;

#[cfg(target_os = "none")]
core::arch::global_asm!(include_str!("boot/boot.S"));
#[cfg(target_os = "none")]
core::arch::global_asm!(include_str!("irq/interrupts.S"));

pub use turnstile_arch_common::monitor::CommonMonitor;
pub use turnstile_arch_common::time::Uptime;
pub use turnstile_arch_common::{console, crew, mmio, pci, phases, println};
pub use vm::monitor::{Monitor, set_monitor};

#[cfg(all(target_os = "none", not(feature = "ablation")))]
core::arch::global_asm!(
    include_str!("exit/vectors.S"),
    include_str!("service/entry.S"),
    include_str!("vcpu/switch.S")
);
// In one piece: the naive loop and the way into services use macros of the others.
#[cfg(all(target_os = "none", feature = "ablation"))]
core::arch::global_asm!(
    include_str!("exit/vectors.S"),
    include_str!("service/entry.S"),
    include_str!("exit/naive/naive.S"),
    include_str!("vcpu/switch.S")
);
