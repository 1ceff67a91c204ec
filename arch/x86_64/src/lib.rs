// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Turnstile on x86-64 with AMD SVM: everything that touches the machine.
//!
//! | file | what |
//! |---|---|
//! | `boot.S`, `boot` | from power-on to the hypervisor's main function |
//! | `vectors.S`, `frame`, `exit` | the run loop, and exits: light and full |
//! | `svm` | control blocks, intercepts, permission maps |
//! | `irq` | a guest's interrupts: local APICs, the I/O APIC, timers |
//! | `kvm` | KVM's paravirtual interface: clocks, stolen time, calls |
//! | `vm`, `vcpu` | the virtual machine as exits see it |
//! | `sched`, `switch.S` | physical CPUs that vCPUs share: switches |
//! | `facility` | what of a vCPU stays in registers until another one needs them |
//! | `switch` | what is loaded when a vCPU becomes resident, and its reset |
//! | `statistics` | what exits cost, for VMs that keep count |
//! | `discover`, `power` | what machine this is, and how it is powered off |
//! | `memory` | physical memory, the hypervisor's address space, nested page tables |
//! | `interrupts.S`, `interrupts`, `lapic`, `ioapic` | the machine's interrupts: when they are taken, kicks, the timer |
//! | `time` | the time stamp counter, the wall clock, deadlines |
//! | `regs`, `cpu`, `ports`, `mmio`, `uart` | the machine's registers, instructions, devices |
//! | `naive` | what exits would do without the techniques; only in images for ablation (feature `ablation`) |
//! | `console`, `fault` | the serial line, and the last words of the hypervisor |
//!
//! On the bare machine this crate is `no_std`; on the host it compiles with fakes in the place of registers
//! (`regs::fakes`), so that exit handlers run in tests and their accesses are counted.
#![cfg_attr(target_os = "none", no_std)]

extern crate alloc;

#[cfg(target_os = "none")]
pub mod boot;
pub mod cpu;
pub mod descriptors;
pub mod discover;
pub mod exit;
pub mod facility;
#[cfg(target_os = "none")]
pub mod fault;
pub mod frame;
pub mod idt;
pub mod interrupts;
pub mod ioapic;
pub mod irq;
pub mod kvm;
pub mod lapic;
pub mod memory;
#[cfg(feature = "ablation")]
pub mod naive;
pub mod ports;
pub mod power;
pub mod regs;
pub mod sched;
pub mod statistics;
pub mod svm;
pub mod switch;
pub mod time;
pub mod uart;
pub mod vcpu;
pub mod vm;

use spin::Once;
use turnstile_vm::lifecycle::Stop;

#[cfg(target_os = "none")]
core::arch::global_asm!(include_str!("boot.S"));
#[cfg(target_os = "none")]
core::arch::global_asm!(include_str!("interrupts.S"));

pub use turnstile_arch_common::{console, mmio, println};

#[cfg(all(target_os = "none", not(feature = "ablation")))]
core::arch::global_asm!(include_str!("vectors.S"), include_str!("switch.S"));
// In one piece: the naive loop uses macros of the others.
#[cfg(all(target_os = "none", feature = "ablation"))]
core::arch::global_asm!(include_str!("vectors.S"), include_str!("naive/naive.S"), include_str!("switch.S"));

/// What full exits need of the hypervisor.
pub trait Monitor: Sync {
    /// Reads `size` bytes of a device register of `vm` at a guest physical address; `None` if there is no device.
    fn mmio_read(&self, vm: &'static vm::Vm, address: u64, size: u8) -> Option<u64>;
    /// Writes a device register; false if there is no device.
    fn mmio_write(&self, vm: &'static vm::Vm, address: u64, size: u8, value: u64) -> bool;
    /// Reads `size` bytes of a port of `vm`; `None` if there is no device.
    fn port_read(&self, vm: &'static vm::Vm, port: u16, size: u8) -> Option<u64>;
    /// Writes a port; false if there is no device.
    fn port_write(&self, vm: &'static vm::Vm, port: u16, size: u8, value: u64) -> bool;
    /// Handles a physical interrupt that belongs to no guest.
    fn interrupt(&self, number: u32);
    /// A deadline set for devices on this CPU has passed.
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
        fn port_read(&self, _: &'static vm::Vm, _: u16, _: u8) -> Option<u64> {
            None
        }
        fn port_write(&self, _: &'static vm::Vm, _: u16, _: u8, _: u64) -> bool {
            false
        }
        fn interrupt(&self, _: u32) {}
        fn deadline(&self) {}
        fn waiting(&self, _: &'static vm::Vm) {}
        fn stopped(&self, _: &'static vm::Vm, _: Stop) {}
    }
    MONITOR.get().copied().unwrap_or(&Nobody)
}
