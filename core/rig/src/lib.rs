// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A test rig for device models: memory that is cut off or changes at any access, and drivers of queues, friendly and hostile;
//! network cards.
//!
//! Only tests use it.
#![forbid(unsafe_code)]

mod card;
mod e1000e;
mod fuse;
mod guest;
mod plain;
mod ram;
mod random;

pub use card::{CARD_FEATURES, Card, Slot};
pub use e1000e::{E1000e, E1000eSlot, Lie};
pub use fuse::Fuse;
pub use guest::{Guest, Reply, Request, Ring};
pub use plain::Plain;
pub use ram::Ram;
pub use random::Random;
