// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is done with one vCPU.
//!
//! | file | what |
//! |---|---|
//! | [`frame`] | where an exit leaves the guest's registers |
//! | [`next`] | how an instruction that exited is stepped over |
//! | [`switch`] | what is loaded when a vCPU becomes resident, and its reset |
//! | [`facility`] | what of a vCPU stays in registers until another one needs them: whose they are |
//! | [`asid`] | by which a TLB tells it from others |
//! | `irq` | its interrupts: its local APIC on this machine |
//! | `kvm` | KVM's paravirtual interface: clocks, stolen time, calls |
//! | [`statistics`] | what its exits cost, for VMs that keep count |
//! | [`serve`](mod@serve) | physical interrupts that have arrived where it is resident |

pub mod asid;
pub mod facility;
pub mod frame;
pub mod irq;
pub mod kvm;
pub mod next;
pub mod serve;
pub mod statistics;
pub mod switch;
