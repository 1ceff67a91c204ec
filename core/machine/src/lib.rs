// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guest machines: where everything is, the device tree that says so, and how a kernel is placed.
//!
//! This crate is the single source of the guests' addresses and interrupt numbers. The hypervisor builds
//! its stage 2 and its device models from it, and the tool's `check` asks it the same questions before
//! anything boots.
//!
//! * [`GuestMachine`] and [`Map`]: the two memory maps, `virt` and `kvmtool`.
//! * [`GicVersion`] and [`Gicr`]: the interrupt controllers and where their registers are.
//! * [`fdt::build`]: the flattened device tree a guest is given.
//! * [`image::parse`]: the header of an arm64 Linux `Image`.
//! * [`FileKind`]: what a file is if it is not a kernel.
//! * [`flat`]: where an image without a header goes, in RAM or in flash.
//! * [`layout()`]: the addresses of kernel, device tree and initial RAM disk (Linux,
//!   `Documentation/arch/arm64/booting.rst`).
//! * [`pc`]: the PC, its ACPI tables, and how its kernels are placed and entered.
//! * [`pseries`]: the POWER partition, its device tree, and how its kernels are placed and entered.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod fdt;
mod file_kind;
pub mod flat;
mod functions;
pub mod gic;
pub mod image;
mod kernel;
pub mod layout;
mod load;
pub mod map;
pub mod pc;
pub mod pseries;
mod region;

pub use fdt::Platform;
pub use file_kind::FileKind;
pub use flat::Flat;
pub use functions::{FunctionKind, Functions};
pub use gic::{GicVersion, Gicr};
pub use image::{ImageError, ImageHeader};
pub use kernel::{FileError, Source};
pub use layout::{Layout, LayoutError, layout};
pub use load::Load;
pub use map::{Device, GuestMachine, Map, MapError, Region, UartKind, UnknownMachine, mpidr};
