// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Control of machines that run: `run` owns the serial line, and offers a socket to others (docs/src/control.md).
//!
//! | file | what |
//! |---|---|
//! | `protocol`, `event`, `state` | what is said on the socket: requests and answers, what happens, what a machine is |
//! | `server`, `outbox` | the socket of a machine: its clients, and the lines on their way to them |
//! | `socket` | makes sockets, also those of ports |
//! | `hub`, `told`, `waiting`, `ring` | what is known of a machine and told to those who ask; commands under way; who waits for figures of memory; the end of a console |
//! | `client`, `find`, `names` | connections to a machine, and which machine is meant |
//! | `list`, `power` | the commands `ls`; `start`, `stop`, `restart` (`console` and `logs` are in `console/remote.rs`) |
//! | `detach` | machines in the background |

pub mod client;
pub mod detach;
pub mod event;
pub mod find;
pub mod hub;
#[cfg(test)]
mod hub_tests;
pub mod list;
pub mod names;
pub mod outbox;
pub mod power;
pub mod protocol;
pub mod ring;
pub mod server;
pub mod socket;
pub mod state;
pub mod told;
pub mod waiting;
