// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Virtual machines and their vCPUs.
//!
//! | file | what |
//! |---|---|
//! | `objects` | [`Vm`] and [`Vcpu`] |
//! | `thread` | what a vCPU has that shares CPUs |
//! | `life` | the lives of a VM, and its memory |
//! | `queues` | posting to vCPUs, kicking and waking them |
//! | `monitor` | what exits ask of the hypervisor |

mod life;
pub mod monitor;
mod objects;
pub mod queues;
mod thread;

pub use objects::{BootState, GUEST_LPCR, Life, Owned, Vcpu, Vm, VmParts};
pub use thread::Thread;
