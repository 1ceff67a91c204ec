// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the hypervisor is to a service that is virtio devices: memory, words that are kept, BARs, messages, events, restarts, and kills at any
//! step that leaves a trace.
//!
//! Only tests use it.
#![forbid(unsafe_code)]

mod bars;
mod board;
mod host;
mod kills;

pub use bars::{Bars, find};
pub use board::{Board, FIRMWARE};
pub use host::{Host, Subject};
pub use kills::Kills;
