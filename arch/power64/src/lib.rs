// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Turnstile on POWER9 and POWER10: everything that touches the machine.
//!
//! The hypervisor runs in hypervisor real mode: it has no translation of its own, so an exit switches none.
//!
//! | file | what |
//! |---|---|
//! | `boot.S`, `boot` | from skiboot to the hypervisor's main function |
//! | `vectors.S`, `frame`, `exit` | interrupt vectors, and exits: light and full |
//! | `irq` | a guest's interrupts: XIVE and XICS |
//! | `vm`, `vcpu` | the virtual machine as exits see it |
//! | `sched`, `switch` | physical CPUs that vCPUs share: switches; what is loaded when a vCPU becomes resident |
//! | `facility` | what of a vCPU stays in registers until another one needs them |
//! | `discover`, `opal`, `power` | what machine this is, its firmware's services, and how it is powered off |
//! | `memory`, `partition` | physical memory, and partition-scoped translation |
//! | `time` | the time base, the wall clock, deadlines |
//! | `regs`, `cpu`, `uart` | the machine's registers, instructions, the serial line |
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
pub mod discover;
pub mod exit;
pub mod facility;
#[cfg(target_os = "none")]
pub mod fault;
pub mod frame;
#[cfg(target_os = "none")]
mod inhibited;
pub mod irq;
pub mod memory;
#[cfg(feature = "ablation")]
pub mod naive;
pub mod opal;
pub mod partition;
pub mod power;
pub mod regs;
pub mod sched;
pub mod statistics;
pub mod switch;
pub mod time;
pub mod uart;
pub mod vcpu;
pub mod vm;

use spin::Once;
use turnstile_vm::lifecycle::Stop;

#[cfg(target_os = "none")]
core::arch::global_asm!(include_str!("boot.S"));
#[cfg(all(target_os = "none", not(feature = "ablation")))]
core::arch::global_asm!(include_str!("vectors.S"), include_str!("image.S"), include_str!("switch.S"));
// In one piece: the naive entries lead to the others.
#[cfg(all(target_os = "none", feature = "ablation"))]
core::arch::global_asm!(
    include_str!("vectors.S"),
    include_str!("image.S"),
    include_str!("naive/naive.S"),
    include_str!("switch.S")
);

pub use turnstile_arch_common::{console, mmio, println};

/// What full exits need of the hypervisor.
pub trait Monitor: Sync {
    /// Reads `size` bytes of a device register of `vm` at a guest real address; `None` if there is no device.
    fn mmio_read(&self, vm: &'static vm::Vm, address: u64, size: u8) -> Option<u64>;
    /// Writes a device register; false if there is no device.
    fn mmio_write(&self, vm: &'static vm::Vm, address: u64, size: u8, value: u64) -> bool;
    /// Takes characters that `vm` writes to its terminal.
    fn terminal_write(&self, vm: &'static vm::Vm, characters: &[u8]);
    /// Moves what was typed for `vm` to `room`; returns how many characters those are.
    fn terminal_read(&self, vm: &'static vm::Vm, room: &mut [u8]) -> usize;
    /// Returns the wall clock of `vm`: nanoseconds since 1970.
    fn clock(&self, vm: &'static vm::Vm) -> u64;
    /// Sets the wall clock of `vm`.
    fn set_clock(&self, vm: &'static vm::Vm, nanoseconds: u64);
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
        fn terminal_write(&self, _: &'static vm::Vm, _: &[u8]) {}
        fn terminal_read(&self, _: &'static vm::Vm, _: &mut [u8]) -> usize {
            0
        }
        fn clock(&self, _: &'static vm::Vm) -> u64 {
            0
        }
        fn set_clock(&self, _: &'static vm::Vm, _: u64) {}
        fn interrupt(&self, _: u32) {}
        fn deadline(&self) {}
        fn waiting(&self, _: &'static vm::Vm) {}
        fn stopped(&self, _: &'static vm::Vm, _: Stop) {}
    }
    MONITOR.get().copied().unwrap_or(&Nobody)
}
