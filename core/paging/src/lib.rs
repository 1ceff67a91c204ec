// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Builds translation tables and hands out physical memory.
//!
//! One radix-tree builder, [`PageTable`], serves every table the hypervisor needs; what an entry looks like is
//! a [`Format`]: [`Stage2`] and [`Stage1El2`] of Arm, [`Nested`] and [`HostTables`] of AMD64, [`Partition`] of
//! POWER. The memory of the tables is behind [`Tables`], so the builder is safe code: the
//! hypervisor implements it over physical memory, the tests over a map.
//!
//! [`FrameAllocator`] gives out the physical ranges themselves: guest memory and table pools.
#![no_std]
#![forbid(unsafe_code)]

mod arm64;
mod demand;
mod format;
mod frames;
mod power;
mod tree;
mod window;
mod x86;

pub use arm64::{
    MAIR_EL2, Memory, Permission, Stage1Attributes, Stage1El0, Stage1El2, Stage1Regime, Stage2,
    Stage2Attributes,
};
pub use demand::{BLOCK, Blocks, Progress, Slot, whole_blocks};
pub use format::{Entry, Format, Level, MAX_LEVELS, PhysAddr, Tables};
pub use frames::{FrameAllocator, FrameError, FrameRange};
pub use power::{Partition, PartitionAttributes};
pub use tree::{Error, PageTable, Translation};
pub use window::{WINDOW, windows};
pub use x86::{HostAttributes, HostTables, Nested, NestedAttributes};

/// The examples of the README compile and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
