// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the machine has besides CPUs and memory: what its device tree says, its serial port, power, firmware; and what its
//! CPUs need against speculation.

pub mod discover;
pub mod mitigation;
pub mod power;
pub mod psci;
pub mod uart;
