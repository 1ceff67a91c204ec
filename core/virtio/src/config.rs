// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The configuration of device types (section 5), with their feature bits and the headers of their requests.

mod balloon;
mod block;
mod bytes;
mod console;
mod network;
mod space;

pub use balloon::Balloon;
pub use block::{Block, BlockRange, BlockRequest};
pub use console::{Console, ConsoleControl};
pub use network::{Network, NetworkHeader};
pub use space::{Configuration, SPACE};

/// The type of network devices.
pub const NETWORK: u16 = 1;
/// The type of block devices.
pub const BLOCK: u16 = 2;
/// The type of consoles.
pub const CONSOLE: u16 = 3;
/// The type of entropy devices, which have no configuration: `()`.
pub const ENTROPY: u16 = 4;
/// The type of memory balloons.
pub const BALLOON: u16 = 5;
