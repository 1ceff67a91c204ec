// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the machine has besides CPUs, memory and interrupts.
//!
//! | file | what |
//! |---|---|
//! | [`discover`] | what machine this is |
//! | [`uart`] | the serial port |
//! | [`clock`] | the real-time clock |
//! | [`pci`] | the PCI configuration space |
//! | [`power`] | how it is powered off, and reset |
//! | [`mitigation`] | what its CPUs need against speculation, at boot; the run loops do the rest |

pub mod clock;
pub mod discover;
pub mod mitigation;
pub mod pci;
pub mod power;
pub mod uart;
