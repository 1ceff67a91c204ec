// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the machine has besides CPUs, memory and interrupts.
//!
//! | file | what |
//! |---|---|
//! | [`discover`] | what machine this is |
//! | [`uart`] | the serial port |
//! | [`power`] | how it is powered off, and reset |
//! | [`mitigation`] | what its CPUs need against speculation, at boot; the run loops do the rest |

pub mod discover;
pub mod mitigation;
pub mod power;
pub mod uart;
