// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine's interrupt controller, and what guests have of it: XIVE, which a guest drives itself, or XICS, which it drives by
//! calls. What is done with a vCPU's is in `vcpu/interrupts.rs`, the calls in `exit`.
//!
//! | file | what |
//! |---|---|
//! | `host` | the machine's controller |
//! | `firmware` | its configuration, which is the firmware's |
//! | `tima` | what the controller has of this CPU |
//! | `ring` | what of that is the resident vCPU's |
//! | `wire` | the same of a guest that does not see its ring |
//! | `event` | event state buffers of interrupt sources |
//! | `queue` | what comes for the hypervisor: events of the next two |
//! | `escalation` | what comes for vCPUs that are resident nowhere |
//! | `device` | interrupts of devices that services drive |
//! | `bridge` | the PCI host bridges behind which those are |
//! | `own` | what a vCPU has |
//! | `accepted` | what is kept away from a vCPU for a while |
//! | `board` | what a VM has: virtual processors, sources, what the guest has made of them |
//!
//! Either way the guest's external interrupt is made by the controller, in the ring of the operating system: with XIVE by what
//! the guest's own sources send, with XICS by one store of the hypervisor's. The guest takes it by itself, at once or as soon
//! as its MSR has EE: no exit announces that, and nothing is looked at on an exit that is not about interrupts.

mod accepted;
mod board;
mod bridge;
mod device;
pub(crate) mod escalation;
mod event;
mod firmware;
pub mod host;
mod own;
pub(crate) mod queue;
mod ring;
mod tima;
mod wire;

#[cfg(test)]
mod tests;

pub(crate) use accepted::Accepted;
pub use board::{Board, Window};
pub use bridge::Bridge;
pub use firmware::Error;
pub(crate) use own::Left;
pub use own::{Own, Presentation, Shared};
pub use queue::start_cpu;
