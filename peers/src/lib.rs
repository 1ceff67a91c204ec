// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A small virtual machine monitor for Linux KVM on arm64, x86-64 and POWER.
//!
//! It gives the measuring guests the machine that Turnstile gives them (`kvmtool`, `pc` and `pseries` of `core/machine`),
//! so that the very same images run on both, on PCs Debian's Linux among them. The guest's serial line goes to standard output. Lines of the monitor's own
//! begin with `@`: `@error text` if something failed, `@note text`, `@cycles number`, `@event name number`,
//! `@exit reason number`, `@eoi vector number`.
//!
//! As process 1 of an initial RAM disk it is all there is of a host's user space: it mounts what it needs, loads the
//! kernel's modules that lie in `/modules`, and ends by switching the host off.

pub mod arm64;
pub mod console;
#[cfg(all(any(target_arch = "aarch64", target_arch = "x86_64"), target_os = "linux"))]
pub mod cycles;
#[cfg(all(
    any(target_arch = "aarch64", target_arch = "powerpc64", target_arch = "x86_64"),
    target_os = "linux"
))]
pub mod doorbell;
#[cfg(all(any(target_arch = "aarch64", target_arch = "x86_64"), target_os = "linux"))]
pub mod events;
#[cfg(all(
    any(target_arch = "aarch64", target_arch = "powerpc64", target_arch = "x86_64"),
    target_os = "linux"
))]
pub mod host;
pub mod options;
#[cfg(all(
    any(target_arch = "aarch64", target_arch = "powerpc64", target_arch = "x86_64"),
    target_os = "linux"
))]
pub mod others;
#[cfg(all(target_arch = "powerpc64", target_os = "linux"))]
pub mod power64;
#[cfg(all(
    any(target_arch = "aarch64", target_arch = "powerpc64", target_arch = "x86_64"),
    target_os = "linux"
))]
pub mod shared;
pub mod symbols;
#[cfg(all(
    any(target_arch = "aarch64", target_arch = "powerpc64", target_arch = "x86_64"),
    target_os = "linux"
))]
pub mod vcpu;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub mod x86_64;

/// The architecture that this is built for.
#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
pub use arm64 as arch;
#[cfg(all(target_arch = "powerpc64", target_os = "linux"))]
pub use power64 as arch;
#[cfg(all(target_arch = "powerpc64", target_os = "linux"))]
pub use power64::{cycles, events};
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub use x86_64 as arch;
