// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupts of the machine, and the interrupt controllers of a VM as far as they know neither that nor its vCPUs.
//!
//! | file | what |
//! |---|---|
//! | `interrupts.S`, [`interrupts`] | vectors, and the moments in which interrupts are taken |
//! | [`idt`] | the descriptor tables by which they arrive |
//! | [`lapic`], [`ioapic`] | the machine's local APICs and I/O APICs |
//! | [`messages`] | interrupts of PCI functions |
//! | [`board`] | the interrupt controllers of a VM |

pub mod board;
pub mod idt;
pub mod interrupts;
pub mod ioapic;
pub mod lapic;
pub mod messages;
