// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupt controllers of the machine: the physical side and the list registers.
//!
//! What an exit does with them is generic over a zero-sized type, [`Gic`], and exists once per version of the GIC: the
//! vectors of a machine lead to its own, so no light exit asks which one it is. The rest picks its instance where it
//! begins ([`in_gic`]).

pub mod absent;
mod control;
pub mod controller;
pub mod gich;
pub mod gicv2;
pub mod gicv3;
pub mod ich;
pub mod legacy;
mod probe;
pub mod switched;

use core::sync::atomic::{AtomicBool, Ordering};

use turnstile_vgic::VirtualInterface;
use turnstile_vm::attention::KickToken;

pub use absent::Absent;
pub use gicv2::Gicv2;
pub use gicv3::Gicv3;
pub use legacy::Gicv3Legacy;
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
/// The private interrupts that are enabled on each CPU, as bits.
const PRIVATE_IN_USE: u32 = 1 << SGI_KICK
    | 1 << SGI_RESCHEDULE
    | 1 << PPI_PMU
    | 1 << PPI_MAINTENANCE
    | 1 << PPI_HYPERVISOR_TIMER
    | 1 << PPI_VIRTUAL_TIMER
    | 1 << PPI_PHYSICAL_TIMER;
/// INTIDs from here on mean "nothing" or are special.
pub const SPURIOUS: u32 = 1020;

/// An acknowledged interrupt, as the interface named it: at most 24 bits, which ending it needs back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledged(pub u32);

/// The GIC of the machine: its CPU interface at EL2, and the virtual CPU interface.
pub trait Gic: Switched + 'static {
    /// The virtual CPU interface: zero-sized, its state is the hardware's.
    type Interface: CpuInterface;
    /// Whether guests reach their CPU interface by system registers; otherwise those are UNDEFINED.
    const SYSTEM_REGISTERS: bool;

    /// Returns the address of the vectors that lead to its handlers, and of their guarded copies; of the timed ones for
    /// a vCPU that keeps statistics.
    fn vectors(timed: bool) -> (u64, u64);

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

/// What else a virtual CPU interface has: what is done at boot, and when a vCPU is reset.
pub trait CpuInterface: VirtualInterface {
    /// Returns how many list registers are used (1 to 16).
    fn list_registers() -> usize;

    /// Returns how many priority bits list registers keep (5 to 8).
    fn priority_bits() -> u32;

    /// Clears what the model takes to be clear when a CPU starts: list registers and maintenance conditions.
    fn start_cpu();

    /// Puts the guest's CPU interface into its reset state: no active priority, groups disabled, priority mask closed.
    /// List registers and maintenance conditions are the model's, which resets them itself.
    fn reset();
}

/// Whether the GIC is a [`Gicv2`]. Written once, before other CPUs run.
static GICV2: AtomicBool = AtomicBool::new(false);

/// Returns whether the GIC of this machine is a [`Gicv2`]; otherwise it is a [`Gicv3`].
#[inline] // One load.
pub fn is_gicv2() -> bool {
    GICV2.load(Ordering::Relaxed)
}

/// Makes the GIC a [`Gicv2`] or a [`Gicv3`]: once, on the boot CPU, before anything looks.
pub fn set_gicv2(gicv2: bool) {
    GICV2.store(gicv2, Ordering::Relaxed);
}

/// Calls a function that is generic over the GIC with the GIC of this machine.
macro_rules! in_gic {
    ($function:ident($($argument:expr),* $(,)?)) => {
        match $crate::irq::is_gicv2() {
            false => $function::<$crate::irq::Gicv3>($($argument),*),
            true => $function::<$crate::irq::Gicv2>($($argument),*),
        }
    };
}
pub(crate) use in_gic;

/// Calls a function that is generic over the GIC with that of this machine as a guest with a GIC of `$model` sees it.
macro_rules! in_gic_of {
    ($model:expr, $function:ident($($argument:expr),* $(,)?)) => {
        match ($crate::irq::is_gicv2(), $model) {
            (true, _) => $function::<$crate::irq::Gicv2>($($argument),*),
            (false, turnstile_vgic::Model::Gicv3) => $function::<$crate::irq::Gicv3>($($argument),*),
            (false, turnstile_vgic::Model::Gicv2) => $function::<$crate::irq::Gicv3Legacy>($($argument),*),
        }
    };
}
pub(crate) use in_gic_of;

/// Whether a guest may deactivate physical interrupts through list registers.
static BACKED: AtomicBool = AtomicBool::new(true);

/// Returns whether a guest may deactivate physical interrupts through list registers: whether one that is still
/// asserted comes again then.
pub fn backs_list_registers() -> bool {
    BACKED.load(Ordering::Relaxed)
}

/// Notes whether a guest may deactivate physical interrupts through list registers: once, on the boot CPU.
fn set_backed(backed: bool) {
    BACKED.store(backed, Ordering::Relaxed);
}

/// Sends [`SGI_KICK`] to the physical CPU with `token`, ordered behind the stores before it.
pub fn kick(token: KickToken) {
    fn kick<G: Gic>(token: KickToken) {
        G::kick(token);
    }
    in_gic!(kick(token));
}

/// Returns how many list registers the virtual CPU interface has that are used.
pub fn list_registers() -> usize {
    fn of<G: Gic>() -> usize {
        G::Interface::list_registers()
    }
    in_gic!(of())
}

/// Returns how many priority bits list registers keep.
pub fn priority_bits() -> u32 {
    fn of<G: Gic>() -> u32 {
        G::Interface::priority_bits()
    }
    in_gic!(of())
}

/// Returns the address of the vectors of `G`, guarded as this CPU needs: of the timed ones for a vCPU that keeps
/// statistics.
pub fn vectors_of<G: Gic>(timed: bool) -> u64 {
    let (table, guarded) = G::vectors(timed);
    crate::cpu::this().guard.table(table, guarded)
}

/// Makes this CPU take exits by vectors that [`vectors_of`] returned.
pub fn use_vectors(vectors: u64) {
    // SAFETY: complete vector tables, which do the same; EL2 itself takes no exceptions.
    unsafe { crate::regs::VBAR_EL2.write(vectors) };
    crate::cpu::isb();
}

/// Defines a function that returns the addresses of one of two vector tables of `vectors.S`, and of its guarded copies.
macro_rules! vectors {
    ($plain:ident, $timed:ident, $plain_guarded:ident, $timed_guarded:ident) => {
        fn vectors(timed: bool) -> (u64, u64) {
            #[cfg(target_os = "none")]
            {
                unsafe extern "C" {
                    static $plain: u8;
                    static $timed: u8;
                    static $plain_guarded: u8;
                    static $timed_guarded: u8;
                }
                match timed {
                    false => (&raw const $plain as u64, &raw const $plain_guarded as u64),
                    true => (&raw const $timed as u64, &raw const $timed_guarded as u64),
                }
            }
            #[cfg(not(target_os = "none"))]
            (u64::from(timed), 0)
        }
    };
}
pub(crate) use vectors;
