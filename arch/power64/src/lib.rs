// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Turnstile on POWER9 and POWER10: everything that touches the machine.
//!
//! The hypervisor runs in hypervisor real mode: it has no translation of its own, so an exit switches none.
//!
//! Layers, from the ground up; each knows only itself and those above it in this table:
//!
//! | folder | what |
//! |---|---|
//! | `cpu` | instructions, registers, the per-CPU area's ground part |
//! | `board` | the machine: its device tree, its firmware, the serial line, power; what is needed against speculation |
//! | `memory` | physical memory, guests' memory, partition-scoped translation |
//! | `irq` | the interrupt controller, and what guests have of it: XIVE and XICS |
//! | `time` | the time base, the wall clock, deadlines |
//! | `state` | what a guest's state consists of |
//! | `service` | services: their address spaces, and the way in and out |
//! | `vm` | virtual machines and their vCPUs: the objects, posting and kicking |
//! | `vcpu` | what is done with one vCPU: its frame, its registers, its interrupts, its statistics |
//! | `sched` | physical CPUs that vCPUs share: what a switch moves |
//! | `exit` | interrupt vectors, and exits: light and full |
//! | `boot` | from skiboot to the hypervisor's main function; its last words; the whole per-CPU area |
//!
//! On the bare machine this crate is `no_std`; on the host it compiles with fakes in the place of registers
//! (`cpu::regs::fakes`), so that exit handlers run in tests and their accesses are counted.
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
#[cfg(all(target_os = "none", not(feature = "ablation")))]
core::arch::global_asm!(
    include_str!("exit/vectors.S"),
    include_str!("exit/guards.S"),
    include_str!("exit/image.S"),
    include_str!("exit/calls.S"),
    include_str!("exit/service.S"),
    include_str!("service/entry.S"),
    include_str!("state/fp.S"),
    include_str!("vcpu/switch.S")
);
// In one piece: the naive entries lead to the others.
#[cfg(all(target_os = "none", feature = "ablation"))]
core::arch::global_asm!(
    include_str!("exit/vectors.S"),
    include_str!("exit/guards.S"),
    include_str!("exit/image.S"),
    include_str!("exit/calls.S"),
    include_str!("exit/service.S"),
    include_str!("service/entry.S"),
    include_str!("exit/naive/naive.S"),
    include_str!("state/fp.S"),
    include_str!("vcpu/switch.S")
);

pub use turnstile_arch_common::monitor::CommonMonitor;
pub use turnstile_arch_common::time::Uptime;
pub use turnstile_arch_common::{console, crew, mmio, pci, phases, println};
pub use vm::monitor::{Monitor, set_monitor};
