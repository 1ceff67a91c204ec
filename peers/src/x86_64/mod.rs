// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine `pc` on KVM's local APICs, I/O APIC, 8259s and 8254.

mod cpuid;
mod load;
mod machine;
pub mod options;
pub mod ports;
mod run;

pub use kvm_ioctls::VcpuFd as Vcpu;
pub use machine::{Devices, Machine, build, devices};
pub use run::enter;
