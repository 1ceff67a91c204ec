// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Named ports of VMs as Unix sockets: one for each port, beside the control socket, with raw bytes.
//!
//! | file | what |
//! |---|---|
//! | `server` | the sockets |
//! | `connection`, `outbox`, `says` | a program that is at a port: its threads, the bytes on their way to it, and what it does |
//! | `desk` | which program is at which port; it waits for nobody |
//! | `command` | the command `port` |

mod command;
mod connection;
mod desk;
mod outbox;
mod says;
mod server;
#[cfg(test)]
mod tests;

pub use command::port;
pub use desk::Desk;
pub use says::Says;
pub use server::{Named, Offer, abandon};
