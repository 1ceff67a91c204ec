// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Virtual machines and their vCPUs: the objects, and how they reach each other.

pub mod messages;
pub mod monitor;
pub mod objects;
pub mod own;
pub mod peers;
pub mod queues;
pub mod thread;

pub use messages::MESSAGES;
pub use monitor::Monitor;
pub(crate) use monitor::monitor;
pub use objects::{Owned, Residence, Vcpu, Vm, VmParts};
pub use peers::{Peers, serve_remote};
pub use queues::{On, Residue, Scheduler, System};
pub use thread::Thread;
