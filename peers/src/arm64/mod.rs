// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine `kvmtool` on KVM's GICv3.

pub mod bus;
#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
mod machine;
#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
mod run;

use turnstile_machine::GuestMachine;

#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
pub use {
    bus::Bus as Devices,
    kvm_ioctls::VcpuFd as Vcpu,
    machine::{Machine, build},
    run::enter,
};

/// The machine that guests get.
pub const MACHINE: GuestMachine = GuestMachine::Kvmtool;
/// Its memory in bytes.
pub const MEMORY: u64 = 16 << 20;

/// The devices of a guest.
#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
pub fn devices(_machine: &mut Machine) -> Devices {
    Devices::new(MACHINE.map())
}
