// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exits: the light tier, and what it hands to the full tier.
//!
//! A light handler changes few registers, and its vector stores just those. It leaves every system register of the guest where it
//! is, does not touch the interrupt controller or the timers unless the exit is about them, and returns to the guest after one
//! look at the attention word. What takes more registers it leaves, with nothing done, to a wide handler, for which the vector
//! stores all that compiled code may change; what that cannot finish either goes, with nothing done, to [`full`].

mod attend;
mod decode;
mod flash;
pub mod full;
mod hvc;
mod inject;
mod irq;
mod light;
mod mmio;
#[cfg(feature = "ablation")]
pub mod naive;
pub mod server;
pub mod service;
mod sgi;
mod sysreg;
pub mod table;
#[cfg(test)]
pub(crate) mod tests;
mod trapped;
pub mod wait;
#[cfg(any(test, feature = "ablation"))]
mod whole;
