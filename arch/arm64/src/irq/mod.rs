// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupt controllers of the machine: the physical side and the list registers.
//!
//! What an exit does with them is generic over a zero-sized type, [`Gic`], and exists once per version of the GIC: the
//! vectors of a machine lead to its own, so no light exit asks which one it is. The rest picks its instance where it
//! begins ([`in_gic`]).

pub mod absent;
pub mod gicv3;
pub mod ich;
pub mod switched;

use turnstile_vgic::VirtualInterface;
use turnstile_vm::attention::KickToken;

pub use absent::Absent;
pub use gicv3::Gicv3;
pub use switched::{InterfaceState, Switched};

/// SGI by which one physical CPU makes another look at its attention words.
pub const SGI_KICK: u32 = 0;
/// SGI by which one physical CPU makes another look at its run queue. Not the same as [`SGI_KICK`], which the light tier
/// handles without knowing of run queues.
pub const SGI_RESCHEDULE: u32 = 1;
/// PPI of the PMU's overflow, for guests and, by the Server Base System Architecture, of machines.
pub const PPI_PMU: u32 = 23;
/// PPI of the GIC's maintenance interrupt (fixed by the Server Base System Architecture).
pub const PPI_MAINTENANCE: u32 = 25;
/// PPI of the EL2 physical timer.
pub const PPI_HYPERVISOR_TIMER: u32 = 26;
/// PPI of the virtual timer.
pub const PPI_VIRTUAL_TIMER: u32 = 27;
/// PPI of the EL1 physical timer.
pub const PPI_PHYSICAL_TIMER: u32 = 30;
/// INTIDs from here on mean "nothing" or are special.
pub const SPURIOUS: u32 = 1020;

/// An acknowledged interrupt, as the interface named it: at most 24 bits, which ending it needs back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledged(pub u32);

/// The GIC of the machine: its CPU interface at EL2, and the virtual CPU interface.
pub trait Gic: Switched + 'static {
    /// The virtual CPU interface: zero-sized, its state is the hardware's.
    type Interface: VirtualInterface;

    /// Returns the virtual CPU interface.
    fn interface() -> Self::Interface;

    /// Acknowledges the highest-priority pending interrupt and drops the running priority again, so that others
    /// can follow. It stays active until [`Gic::deactivate`]. The INTID may be one of [`SPURIOUS`] and above.
    fn acknowledge() -> Acknowledged;

    /// Returns the INTID of what was acknowledged.
    fn intid(acknowledged: Acknowledged) -> u32;

    /// Deactivates an interrupt that was acknowledged and is not forwarded to a guest.
    fn deactivate(acknowledged: Acknowledged);

    /// Sends [`SGI_KICK`] to the physical CPU with `token`, ordered behind the stores before it.
    fn kick(token: KickToken);
}

/// Calls a function that is generic over the GIC with the GIC of this machine.
macro_rules! in_gic {
    ($function:ident($($argument:expr),* $(,)?)) => {
        $function::<$crate::irq::Gicv3>($($argument),*)
    };
}
pub(crate) use in_gic;
