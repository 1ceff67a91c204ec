// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The bare-metal image: takes a discovered machine and a bundle, and runs the VMs in it.
//!
//! | file | what |
//! |---|---|
//! | `main` | from the machine to running VMs |
//! | `options` | the hypervisor's command line |
//! | `build` | from the bundle to a VM |
//! | `disk`, `driven` | what services have of the machine: memory for disks, network cards, disk controllers |
//! | `guest` | one VM: started, stopped, started again |
//! | `machine` | what differs by architecture: how a VM is built and furnished, its devices |
//! | `monitor` | what exits of one architecture alone ask for |
//! | `times` | what the start takes, if the command line asks |
//! | `line` | the serial line: consoles, events, commands; framed, or plain text |
//!
//! Everything unsafe, and everything on an exit's path, is in the `arch` crate.
#![cfg_attr(target_os = "none", no_std, no_main)]
#![deny(unsafe_code)]

#[cfg(target_os = "none")]
extern crate alloc;

#[cfg(all(target_os = "none", target_arch = "aarch64"))]
use turnstile_arm64 as arch;
#[cfg(all(target_os = "none", target_arch = "powerpc64"))]
use turnstile_power64 as arch;
#[cfg(all(target_os = "none", target_arch = "x86_64"))]
use turnstile_x86_64 as arch;

#[cfg(target_os = "none")]
mod alarm;
#[cfg(target_os = "none")]
mod build;
#[cfg(target_os = "none")]
#[cfg(target_os = "none")]
mod disk;
mod driven;
mod guest;
#[cfg(target_os = "none")]
mod line;
#[cfg(target_os = "none")]
mod machine;
#[cfg(target_os = "none")]
mod monitor;
#[cfg(target_os = "none")]
mod options;
#[cfg(target_os = "none")]
mod service;
#[cfg(target_os = "none")]
mod system;
#[cfg(target_os = "none")]
mod times;

/// The image is for the bare machine; a host build of the workspace has nothing to run.
#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("turnstile-hypervisor runs on the bare machine: build it with ./x build");
    std::process::exit(2);
}
