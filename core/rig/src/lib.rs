// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A test rig for device models: memory that is cut off or changes at any access, and drivers of queues, friendly and hostile; for
//! drivers, network cards and disks of the machine.
//!
//! Only tests use it.
#![forbid(unsafe_code)]

mod block_driver;
mod card;
mod disk;
mod e1000e;
mod front;
mod fuse;
mod guest;
mod nvme;
mod plain;
mod platter;
mod ram;
mod random;
mod slot;

pub use block_driver::{ACCEPTED, BlockDriver, Computer, DOORBELL, ECAM, OPTIONS, WINDOW, request};
pub use card::{CARD_FEATURES, Card};
pub use disk::{Disk, Order, disk_settings};
pub use e1000e::{E1000e, E1000eSlot, Lie};
pub use front::Front;
pub use fuse::Fuse;
pub use guest::{Guest, Reply, Request, Ring};
pub use nvme::{Nvme, Shape};
pub use plain::Plain;
pub use platter::Platter;
pub use ram::Ram;
pub use random::Random;
pub use slot::{Behind, Face, Slot};
