// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine `kvmtool` on KVM's GICv3.

pub mod bus;
#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
mod machine;
pub mod options;
#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
mod run;

use turnstile_machine::GuestMachine;

#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
pub use {
    kvm_ioctls::VcpuFd as Vcpu,
    machine::{Devices, Machine, build, devices},
    run::enter,
};

/// The machine that guests get.
pub const MACHINE: GuestMachine = GuestMachine::Kvmtool;
