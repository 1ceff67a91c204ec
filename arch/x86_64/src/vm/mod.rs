// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A virtual machine and its vCPUs.
//!
//! | file | what |
//! |---|---|
//! | `objects` | [`Vm`] and [`Vcpu`] |
//! | `queues` | posting to a vCPU, and waking it |
//! | [`thread`] | what a vCPU has that shares its CPUs |
//! | [`ports`] | which ports have a device |
//! | `reset` | resets of its processors |
//! | [`bell`] | the doorbell that a vCPU has rung last |
//! | `board` | its interrupt controllers: the way from a line to a vCPU, and between vCPUs |
//! | `legacy` | those of an ISA board: the 8259s, and the 8254 |
//! | [`monitor`](mod@monitor) | what exits ask of the hypervisor |

pub mod bell;
mod board;
mod legacy;
pub mod monitor;
mod objects;
pub mod ports;
pub mod queues;
mod reset;
pub mod thread;

pub use objects::{Life, Vcpu, Vm, VmParts};
pub use thread::Thread;
