// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From power-on to the hypervisor's main function, and its end.
//!
//! | file | what |
//! |---|---|
//! | `boot.S`, `early` | from the boot loader to the MMU, in a mode that the CPU has |
//! | `start` | from there to the hypervisor's main function |
//! | `host` | the machine as the hypervisor uses it; the start of its other CPUs |
//! | `bridge` | the machine's PCI, for services that drive a device |
//! | `iommu` | the machine's IOMMUs, which keep such devices to their memory |
//! | [`area`] | what modules have for each CPU |
//! | `fault` | the last words of the hypervisor |

pub mod area;
mod bridge;
#[cfg(target_os = "none")]
mod early;
#[cfg(target_os = "none")]
pub mod fault;
#[cfg(target_os = "none")]
mod host;
mod iommu;
#[cfg(target_os = "none")]
mod start;

pub use bridge::Bridge;
#[cfg(target_os = "none")]
pub use host::Host;
