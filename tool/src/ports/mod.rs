// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Named ports of VMs as Unix sockets: one for each port, beside the control socket, with raw bytes.
//!
//! | file | what |
//! |---|---|
//! | `server` | the sockets |
//! | `connection` | a program that is at a port: the bytes on their way to it |
//! | `desk` | which program is at which port; it waits for nobody |
//! | `command` | the command `port` |

mod command;
mod connection;
mod desk;
mod server;
#[cfg(test)]
mod tests;

pub use command::port;
pub use desk::{Desk, Says};
pub use server::{Offer, abandon};

/// The names of a VM and its ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// The VM's.
    pub vm: String,
    /// Those of its ports, the first of number 1.
    pub ports: Vec<String>,
}
