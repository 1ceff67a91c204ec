// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A small virtual machine monitor for Linux KVM on arm64.
//!
//! It gives the measuring guests the machine that Turnstile gives them (`kvmtool` of `core/machine`), so that the
//! very same images run on both. The guest's serial line goes to standard output. Lines of the monitor's own
//! begin with `@`: `@error text` if something failed, `@note text`, `@cycles number`.
//!
//! As process 1 of an initial RAM disk it is all there is of a host's user space: it mounts what it needs and
//! ends by switching the host off.

pub mod bus;
pub mod console;
#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
pub mod cycles;
#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
pub mod host;
#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
pub mod machine;
pub mod options;
pub mod symbols;
#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
pub mod vcpu;
