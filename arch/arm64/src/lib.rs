// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Turnstile on Armv8-A: everything that touches the machine.
//!
//! | file | what |
//! |---|---|
//! | `boot.S`, `boot` | from power-on to the hypervisor's main function |
//! | `vectors.S`, `frame`, `exit` | an exit, light and full |
//! | `statistics` | what exits cost, for VMs that keep count |
//! | `mitigation`, `guards.S` | keeping guests from steering the hypervisor's speculation |
//! | `mode` | with VHE or without: what differs, and how it is chosen |
//! | `sched`, `state`, `stolen` | physical CPUs that vCPUs share: run queues, switches, stolen time |
//! | `switch` | what is loaded when a vCPU becomes resident, and its reset |
//! | `facility` | what a vCPU gets at its first use: FP and SVE, PMU, debug registers, pointer authentication |
//! | `vm`, `vcpu`, `idregs` | the virtual machine as exits see it |
//! | `irq` | the physical GICv3 and the list registers |
//! | `memory` | physical memory, the EL2 address space, stage 2 |
//! | `regs`, `cpu`, `mmio`, `uart`, `psci`, `power`, `discover` | the machine's registers, instructions, devices, firmware, device tree |
//! | `naive` | what exits would do without the techniques; only in images for ablation (feature `ablation`) |
//! | `console`, `fault` | the serial line, and the last words of the hypervisor |
//!
//! On the bare machine this crate is `no_std`; on the host it compiles with fakes in the place of system
//! registers ([`regs::fakes`]), so that exit handlers run in tests and their accesses are counted.
#![cfg_attr(target_os = "none", no_std)]

extern crate alloc;

#[cfg(target_os = "none")]
pub mod boot;
pub mod cpu;
pub mod demand;
pub mod discover;
pub mod exit;
pub mod facility;
#[cfg(target_os = "none")]
pub mod fault;
pub mod frame;
pub mod idregs;
pub mod irq;
#[cfg(target_os = "none")]
pub mod memory;
pub mod mitigation;
pub mod mode;
#[cfg(feature = "ablation")]
pub mod naive;
pub mod power;
pub mod psci;
pub mod regs;
pub mod sched;
pub mod state;
pub mod statistics;
pub mod stolen;
pub mod switch;
pub mod time;
pub mod uart;
pub mod vcpu;
pub mod vm;

use spin::Once;
pub use turnstile_arch_common::{console, mmio, println};
use turnstile_vm::lifecycle::Stop;

#[cfg(target_os = "none")]
core::arch::global_asm!(include_str!("boot.S"));
#[cfg(target_os = "none")]
core::arch::global_asm!(include_str!("switch.S"));
#[cfg(all(target_os = "none", not(feature = "ablation")))]
core::arch::global_asm!(include_str!("vectors.S"), include_str!("guards.S"));
// In one piece: the guarded and the naive vectors use macros and labels of the others.
#[cfg(all(target_os = "none", feature = "ablation"))]
core::arch::global_asm!(include_str!("vectors.S"), include_str!("guards.S"), include_str!("naive/naive.S"));

/// What full exits need of the hypervisor.
pub trait Monitor: Sync {
    /// Reads `size` bytes of a device register of `vm` at a guest physical address; `None` if there is no device.
    fn mmio_read(&self, vm: &'static vm::Vm, address: u64, size: u8) -> Option<u64>;
    /// Writes a device register; false if there is no device.
    fn mmio_write(&self, vm: &'static vm::Vm, address: u64, size: u8, value: u64) -> bool;
    /// Handles a physical interrupt that belongs to no guest.
    fn interrupt(&self, intid: u32);
    /// A deadline set by [`time::set_deadline`] on this CPU has passed.
    fn deadline(&self);
    /// The first vCPU of `vm` waits on its CPU: starts the VM if that is wanted. Only this CPU starts it.
    fn waiting(&self, vm: &'static vm::Vm);
    /// All vCPUs of `vm` have stopped: takes it down.
    fn stopped(&self, vm: &'static vm::Vm, stop: Stop);
}

static MONITOR: Once<&'static dyn Monitor> = Once::new();

/// Names the hypervisor that full exits call; once, before any guest runs.
pub fn set_monitor(monitor: &'static dyn Monitor) {
    MONITOR.call_once(|| monitor);
}

fn monitor() -> &'static dyn Monitor {
    struct Nobody;
    impl Monitor for Nobody {
        fn mmio_read(&self, _: &'static vm::Vm, _: u64, _: u8) -> Option<u64> {
            None
        }
        fn mmio_write(&self, _: &'static vm::Vm, _: u64, _: u8, _: u64) -> bool {
            false
        }
        fn interrupt(&self, _: u32) {}
        fn deadline(&self) {}
        fn waiting(&self, _: &'static vm::Vm) {}
        fn stopped(&self, _: &'static vm::Vm, _: Stop) {}
    }
    MONITOR.get().copied().unwrap_or(&Nobody)
}
