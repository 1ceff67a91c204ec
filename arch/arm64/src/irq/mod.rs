// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupt controllers of the machine: the physical side and the list registers.

pub mod gicv3;
pub mod ich;
