// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupt controllers of the machine: the physical side and the list registers.
//!
//! What an exit does with them is generic over a zero-sized type, [`Gic`], and exists once per version of the GIC: the
//! vectors of a machine lead to its own, so no light exit asks which one it is. The rest picks its instance where it
//! begins ([`in_gic`]).

pub mod absent;
mod control;
pub mod controller;
mod device;
pub mod gic;
pub mod gich;
pub mod gicv2;
pub mod gicv3;
pub mod ich;
pub mod interface;
pub mod legacy;
pub mod lines;
mod probe;
pub mod select;
pub mod switched;
#[cfg(test)]
mod tests;

pub use absent::Absent;
pub use gic::{
    Acknowledged, CpuInterface, Gic, PPI_HYPERVISOR_TIMER, PPI_MAINTENANCE, PPI_PHYSICAL_TIMER, PPI_PMU,
    PPI_VIRTUAL_TIMER, SGI_KICK, SGI_RESCHEDULE, SPURIOUS, Switched, VectorsKind, use_vectors, vectors_of,
};
pub use gicv2::Gicv2;
pub use gicv3::Gicv3;
pub use interface::InterfaceState;
pub use legacy::Gicv3Legacy;
pub use select::{backs_list_registers, encoding, is_gicv2, kick, list_registers, priority_bits, set_gicv2};
pub(crate) use select::{in_gic, in_gic_of};
