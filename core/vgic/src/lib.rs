// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The virtual GICv3 (Arm IHI 0069) and GICv2 (Arm IHI 0048) as a pure model: registers, the state of every interrupt, and the
//! plan of the list registers. No hardware is touched but through [`VirtualInterface`], no other vCPU
//! but through [`Host`].
//!
//! # Who owns what
//!
//! - [`Vgic`], one per VM, shared by `&`: `GICD_CTLR`, the SPIs (one atomic word each), the affinities.
//!   Only atomics, no locks; the module `spi` has the protocol and why it loses nothing.
//! - [`VcpuGic`], one per vCPU, used by `&mut` on the physical CPU where the vCPU is resident: the
//!   redistributor, everything private, the interrupts in custody and the list registers.
//! - [`Context`] carries a [`Vgic`], the [`VirtualInterface`] and the [`Host`] to the slow operations.
//!
//! # What `arch` and `core/vm` call
//!
//! | event | call |
//! |---|---|
//! | the VM is built | [`Vgic::new`], [`VcpuGic::new`] for each vCPU |
//! | a vCPU becomes resident, stops being so | [`VcpuGic::load`], [`VcpuGic::put`] |
//! | `ICC_SGI1R_EL1` and its kin trap | [`Vgic::sgi_targets`]; for the sender itself [`VcpuGic::inject_sgi`], for others [`Host::post`] |
//! | a GICv2 guest writes `GICD_SGIR` | [`Vgic::sgir_targets`]; for the sender itself [`VcpuGic::inject_sgi_from`], for others [`Vgic::post_sgi`] |
//! | a timer fires | [`VcpuGic::inject_ppi_hw`] |
//! | any full exit, behind which its line may have fallen | [`VcpuGic::settle`] |
//! | an emulated PPI's line changes | [`VcpuGic::set_private_line`] |
//! | a device's line changes | [`Vgic::set_spi_line`], [`Vgic::edge_spi`], [`Vgic::pulse_spi`]; on the owner's CPU [`VcpuGic::present_edge`] first |
//! | the inbox is drained | [`VcpuGic::deliver`] for each, then [`VcpuGic::settle`] |
//! | an injection returned [`Outcome::Slow`] | [`VcpuGic::settle`] |
//! | a maintenance interrupt | [`VcpuGic::maintenance`] |
//! | `ICC_DIR_EL1` traps, or `GICV_DIR` (see [`Model::Gicv2`]) | [`VcpuGic::dir`] |
//! | another vCPU asks | [`VcpuGic::apply`] |
//! | the distributor is read or written | [`Vgic::dist_read_light`], [`Vgic::dist_read_shared`], then [`VcpuGic::dist_read`]; [`VcpuGic::dist_write`] |
//! | a redistributor is read or written | [`VcpuGic::redist_read_light`], then [`VcpuGic::redist_read`]; [`VcpuGic::redist_write`] |
//! | WFI traps | [`VcpuGic::has_pending`] |
//! | `CPU_OFF`, `CPU_ON` | [`VcpuGic::power_off`], [`VcpuGic::power_on`] |
//! | the VM is reset | [`Vgic::reset`], then [`VcpuGic::reset`] for each vCPU |
//!
//! On an exit that is about none of these, nothing is called, and nothing in the hardware is accessed.
//!
//! # What is not modeled
//!
//! LPIs and the ITS (`GICD_TYPER.LPIS` = 0), Security states (`DS` = 1), legacy operation (`ARE` = 1).
//! One-of-N SPIs go to the first vCPU. `GICR_WAKER` keeps its value but does not block interrupts.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod bits;
mod config;
mod custody;
mod distributor;
mod gicv2;
mod hardware;
mod incoming;
mod inject;
mod lifecycle;
mod lines;
mod mmio;
mod operations;
mod plan;
mod present;
mod redistributor;
mod registers;
mod remote;
mod routes;
mod sources;
mod spi;
mod sync;
mod vcpu;

pub use config::{ConfigError, Model, VgicConfig};
pub use distributor::Vgic;
pub use hardware::{Backing, GroupEnables, ListRegister, LrState, Maintenance, VirtualInterface};
pub use remote::{Context, GROUPS_CHANGED, Host, RemoteOp};
pub use routes::{Neighbors, SearchedTargets, SgiRegister, SgiTargets};
pub use sources::SgirTargets;
pub use vcpu::{Encode, Outcome, VcpuGic};

/// Bounds the vCPUs of one VM.
pub const MAX_VCPUS: usize = 512;

/// Bounds the vCPUs of one VM with GICv2.
pub const MAX_GICV2_VCPUS: usize = 8;

/// Bounds the SPIs of one VM: INTIDs 32 to 991.
pub const MAX_SPIS: u32 = 960;

/// Bounds the list registers, which is what the architecture does.
pub const MAX_LIST_REGISTERS: usize = 16;

/// The examples of the README compile and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
