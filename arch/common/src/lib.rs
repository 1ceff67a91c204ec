// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the `arch` crates share: what is the same whatever the CPU is.
//!
//! | file | what |
//! |---|---|
//! | `allocators` | what physical memory is given out from |
//! | `blob` | the device tree in memory |
//! | `console` | the serial line: one writer at a time, whole messages |
//! | `crew` | memory that the CPUs of a VM clear together |
//! | `demand` | memory that is cleared and mapped when it is first touched |
//! | `memory` | ranges of pages, and errors |
//! | `mmio` | device registers in memory |
//! | `monitor` | what exits ask of the hypervisor |
//! | `of_cpu` | what is one physical CPU's alone |
//! | `pci` | the machine's PCI functions, for services that drive them |
//! | `phases` | what the hypervisor's start takes |
//! | `pooled` | memory of VMs whose blocks come from a pool |
//! | `registers` | registers of a CPU by their names, for the lists of each architecture |
//! | `relax` | waiting for another CPU |
//! | `report` | reports of the hypervisor's end, and faults on purpose |
//! | `service` | programs that handle events, in an address space of their own |
//! | `served` | the devices of a VM that are such programs, and where they are |
//! | `share` | what a VM takes from a pool, and how much that is |
//! | `startup` | the other CPUs as they come up |
//! | `time` | the time of day, and deadlines |
//! | `vm` | what a VM is |
//! | `fakes` | a recorder in the place of the hardware, for tests on the host |
//! | `heap` | translation tables on the host's heap, for tests |
#![cfg_attr(target_os = "none", no_std)]

extern crate alloc;

pub mod allocators;
pub mod blob;
pub mod bound;
pub mod console;
pub mod crew;
pub mod demand;
#[cfg(not(target_os = "none"))]
pub mod fakes;
#[cfg(not(target_os = "none"))]
pub mod heap;
pub mod memory;
pub mod mmio;
pub mod monitor;
pub mod of_cpu;
pub mod pci;
pub mod phases;
pub mod pooled;
mod registers;
mod relax;
pub mod report;
pub mod served;
pub mod service;
pub mod share;
pub mod startup;
pub mod time;
pub mod vm;

pub use relax::relax;
