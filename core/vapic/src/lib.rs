// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The local APIC (xAPIC and x2APIC), the I/O APIC and the paravirtual EOI as pure models (AMD64 APM vol. 2, chapter 16; Intel SDM
//! vol. 3A, "Advanced Programmable Interrupt Controller"). No hardware is touched but through [`Hardware`], no other vCPU
//! but through [`Bus`].
//!
//! # Who owns what
//!
//! - [`Lapic`], one per vCPU, used by `&mut` on the physical CPU where the vCPU is resident.
//! - [`Mailbox`], one per vCPU, shared: what others post. Lock-free.
//! - [`Routes`], one per VM, shared: who is meant by a destination. Lock-free.
//! - [`IoApic`], one per VM, under a lock that no interrupt of the vCPUs among themselves takes.
//!
//! APIC IDs are the vCPUs' numbers.
//!
//! # What `arch` calls
//!
//! | event | call |
//! |---|---|
//! | the VM is built | [`Routes::new`], [`Lapic::new`] for each vCPU |
//! | the VM starts; a vCPU gets INIT | [`Lapic::reset`]; [`Lapic::init`] |
//! | the guest reads or writes MSR 0x800–0x8ff | [`Lapic::read_msr`], [`Lapic::write_msr`] |
//! | it accesses the page at [`Lapic::page`] | [`Lapic::read_page`], [`Lapic::write_page`] |
//! | it reads or writes APIC_BASE, IA32_TSC_DEADLINE, MSR 0x4b564d04 | [`Lapic::base`], [`Lapic::set_base`] … |
//! | it accesses the I/O APIC | [`IoApic::read`], [`IoApic::write`] |
//! | the mailbox has something | [`Lapic::drain`] |
//! | the armed time has come | [`Lapic::timer`] |
//! | a device's line changes | [`IoApic::set_line`], and [`Lapic::set_line`] for the 8259 |
//! | HLT; it goes on; it has ended then | [`Lapic::has_deliverable`]; [`Lapic::rest`]; [`Lapic::rise`] |
//! | firmware lets the first vCPU go on | [`Lapic::wire`] |
//! | a paravirtual IPI | [`Routes::each`] or [`Routes::deliver`], and [`Lapic::accept`] for the sender itself |
//!
//! On an exit that is about none of these nothing is called: `V_IRQ`, the guest's EOI word and the task priority are looked
//! at when one of these comes, and not before.
//!
//! # What is not modeled
//!
//! SMM; the extended registers of AMD (APIC_VER bit 31); interrupts of the 8259 through the I/O APIC (message type 111); the
//! arbitration priority register, which reads as zero; delivery to the vCPU of really the lowest priority. The ID register is
//! read-only. A write of CR8 that repeats the class of the task priority leaves its low bits, which real ones clear: the CPU does
//! not say that it was written.
#![cfg_attr(not(loom), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod base;
mod deliver;
mod dispatch;
mod frequent;
mod hardware;
mod icr;
mod ioapic;
mod lapic;
mod lvt;
mod mailbox;
mod message;
mod mode;
mod page;
mod promise;
mod pv_eoi;
mod registers;
mod routes;
mod state;
mod sync;
mod timer;
mod vectors;
mod x2apic;

pub use hardware::{Bus, Context, Event, Hardware};
pub use ioapic::{IOAPIC_PINS, IoApic};
pub use lapic::{DEFAULT_BASE, Lapic};
pub use mailbox::Mailbox;
pub use message::{BROADCAST, Delivery, Message, Signal};
pub use mode::Mode;
pub use routes::Routes;
pub use timer::NEVER;
pub use vectors::VectorSet;
pub use x2apic::{X2APIC_FIRST, X2APIC_LAST};

/// Bounds the vCPUs of one VM.
pub const MAX_VCPUS: usize = 512;

/// The guest made an access that is #GP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault;

/// The examples of the README compile and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
