// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The boot bundle: every VM's description and images in one blob.
//!
//! The tool writes it ([`write()`], feature `alloc`), any boot loader can pass it as an initial RAM disk
//! or module, and the hypervisor reads it in place ([`Bundle::parse`]), without allocating. Both sides
//! use [`VmSpec`] for the descriptions and check them with the same function, [`validate`].
//!
//! The blob is a flattened device tree (Devicetree Specification 0.4, chapter 5):
//!
//! ```text
//! / {
//!     digest = <u64>;                    at byte 76, always
//!     compatible = "turnstile,bundle";
//!     version = <15>;
//!     pool = <u64>;                      only if there is one
//!     images {
//!         image-0 { digest = <u64>; padding = [...]; data = [...]; };
//!     };
//!     vms {
//!         vm-0 {
//!             name = "linux"; vcpus = <2>; cpus = <0 1>; schedule = "pinned";
//!             memory = <u64>; mapping = "at-start";
//!             machine = "virt"; gic = "auto"; pmu = "off"; sve;
//!             format = "flat"; load = <u64>; entry = <u64>; flash = <u64>;
//!             on-crash = "stop"; statistics; cmdline = "..."; kernel = <0>; initrd = <1>;
//!         };
//!         vm-1 {
//!             schedule = "shared"; weight = <100>;         or realtime = <1>;
//!             machine = "pc"; apic = "x2apic"; paravirt = "clock", "eoi"; triple-fault = "reset";
//!             ...
//!         };
//!         vm-2 {
//!             machine = "pseries"; interrupts = "auto"; threads = <1>;
//!             ...
//!         };
//!     };
//!     services {                         only if there are any
//!         service-0 { name = "console"; program = <2>; vm = <0>; device = "uart"; time-limit = <u64>; memory; };
//!         service-1 { ...; device = "pci"; memory; disk = <0>; cpu = <3>; };
//!         service-2 { name = "lan"; program = <4>; device = "network"; time-limit = <u64>; memory;
//!                     uplink = <0>; trusted; };
//!         service-3 { ...; vm = <0>; device = "entropy"; memory; };      or "console"
//!         service-4 { ...; vm = <1>; device = "pci"; memory; disk = <1>; };
//!         service-5 { ...; vm = <2>; device = "pci"; memory; disk = <2>; joins = <4>; };
//!         service-6 { ...; vm = <0>; device = "ports"; memory; ports = "agent log"; };
//!     };
//!     disks {                            only if there are any
//!         disk-0 { name = "root"; image = <3>; size = <u64>; read-only; };      or writes = <u64>;
//!         disk-1 { name = "data"; size = <0>; drive = "nvme"; number = <0>; partition = <2>; trusted; };
//!         disk-2 { name = "more"; size = <0>; drive = "nvme"; number = <0>; partition = <3>; trusted; };
//!     };
//!     ports {                            only if there are any
//!         port-0 { service = <2>; vm = <0>; mac = [6 bytes]; guard; isolated; rate = <u64>; queues = <u32>; };
//!     };
//! };
//! ```
//!
//! `/digest` is the xxh64 of the whole blob, with the digest's own eight bytes as zeros, so it detects every flipped byte. It
//! guards against accidents, not against somebody who can write the blob. The images' own digests are read only if it does not
//! match, to say what is damaged. Equal images are stored once. The padding, zeros, puts each image at a multiple of
//! [`IMAGE_ALIGN`] bytes of the blob, so it is read and copied by whole words. Properties and nodes that are not listed here are
//! refused: a bundle is never understood in part.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(feature = "alloc")]
extern crate alloc;

mod check;
mod choices;
mod cpus;
mod digest;
mod disk;
mod disk_error;
mod error;
mod fields;
mod machine;
mod paravirt;
mod port;
mod port_error;
mod read;
mod read_disk;
mod read_port;
mod read_service;
mod read_vm;
mod schedule;
mod service;
mod service_error;
mod spec;
mod spec_error;
mod tenants;
#[cfg(feature = "alloc")]
mod write;
mod xxh64;

pub use check::{validate, validate_pool};
pub use choices::UnknownChoice;
pub use cpus::CpuList;
pub use disk::{DiskMemory, DiskSpec, Drive, DriveKind, validate_disks};
pub use disk_error::{DiskError, DiskLabel};
pub use error::{BundleError, Part};
pub use machine::{Apic, Arm64, Format, Gic, Interrupts, Machine, Pc, Pmu, Pseries, Transport, TripleFault};
pub use paravirt::{Feature, Paravirt};
pub use port::{PortSpec, ports_of, validate_ports};
pub use port_error::PortError;
pub use read::Bundle;
pub use schedule::{Class, Schedule};
pub use service::{ServiceDevice, ServiceSpec, Uplink, is_port_name, validate_services};
pub use service_error::{ServiceError, ServiceLabel};
pub use spec::{Mapping, OnCrash, VmSpec};
pub use spec_error::{SpecError, VmLabel};
pub use turnstile_machine::{Flat, GicVersion, GuestMachine};
#[cfg(feature = "alloc")]
pub use write::{write, write_with};

/// The most VMs in a bundle.
pub const MAX_VMS: usize = 32;
/// The most services in a bundle.
pub const MAX_SERVICES: usize = 32;
/// The most disks in a bundle.
pub const MAX_DISKS: usize = 16;
/// The most ports of networks in a bundle.
pub const MAX_PORTS: usize = 64;
/// The most ports of one network, and the most functions of one disk controller.
pub const MAX_MEMBERS: usize = turnstile_service::abi::MEMBERS as usize;
/// The most named ports of one VM's console.
pub const MAX_NAMED_PORTS: usize = turnstile_service::abi::PORTS as usize;
/// The most bytes of a port's name.
pub const MAX_PORT_NAME: usize = 8 * turnstile_service::abi::PORT_NAME_WORDS as usize - 1;
/// The most PCI functions of one VM: services and ports of networks.
pub const MAX_FUNCTIONS: usize = 30;
/// The most bytes of a VM's name.
pub const MAX_NAME: usize = 31;
/// The most bytes of a disk.
pub const MAX_DISK: u64 = 1 << 38;
/// The most bytes of a disk's name, which its guest sees as the disk's ID.
pub const MAX_DISK_NAME: usize = 16;
/// The most bytes of a kernel's command line.
pub const MAX_CMDLINE: usize = turnstile_machine::fdt::MAX_BOOTARGS;
/// The number of physical CPUs that can be named: indexes are below this.
pub const MAX_PHYSICAL_CPUS: usize = 512;
/// The value of the root node's `compatible`.
pub const COMPATIBLE: &str = "turnstile,bundle";
/// The version of the format that this crate writes, and the only one that it reads.
pub const VERSION: u32 = 15;
/// The writer puts each image at a multiple of this many bytes of the blob.
pub const IMAGE_ALIGN: usize = 64;

/// The most images: a kernel and an initial RAM disk for each VM, a program for each service, and each disk's contents.
const MAX_IMAGES: usize = 2 * MAX_VMS + MAX_SERVICES + MAX_DISKS;
