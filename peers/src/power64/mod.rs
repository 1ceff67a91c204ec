// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine `pseries` on Linux's KVM in hypervisor mode, with KVM's own XIVE or XICS.

mod abi;
pub mod cycles;
pub mod events;
mod kvm;
pub mod options;
mod partition;
mod run;
mod xive;

pub use partition::{Devices, Machine, Vcpu, build, devices};
pub use run::enter;
