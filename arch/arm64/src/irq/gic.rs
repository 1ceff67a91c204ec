// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A GIC, whichever version it is: what exits, load and put, and boot code do with it, and the numbers of its interrupts.

use core::num::NonZeroU8;

use turnstile_vgic::{Model, VirtualInterface};
use turnstile_vm::attention::KickToken;

use super::interface::InterfaceState;
use crate::cpu::{self, regs};

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
pub(super) const PRIVATE_IN_USE: u32 = 1 << SGI_KICK
    | 1 << SGI_RESCHEDULE
    | 1 << PPI_PMU
    | 1 << PPI_MAINTENANCE
    | 1 << PPI_HYPERVISOR_TIMER
    | 1 << PPI_VIRTUAL_TIMER
    | 1 << PPI_PHYSICAL_TIMER;
/// Priority of the hypervisor's own devices: higher than that of all other physical interrupts, which guests cause and which
/// cannot keep it from being acknowledged.
pub(super) const OWN_PRIORITY: u8 = 0x80;
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

    /// The same, and deactivates a kick ([`SGI_KICK`]), which is forwarded to nobody.
    #[inline(always)] // Of every physical interrupt's exit.
    fn acknowledge_and_end_kick() -> Acknowledged {
        let acknowledged = Self::acknowledge();
        if Self::intid(acknowledged) == SGI_KICK {
            Self::deactivate(acknowledged);
        }
        acknowledged
    }

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

/// What load and put do with a GIC.
pub trait Switched {
    /// Stores the guest's CPU interface.
    fn save_interface(state: &mut InterfaceState);

    /// Loads the guest's CPU interface.
    ///
    /// # Safety
    /// It is that of the vCPU that becomes resident.
    unsafe fn load_interface(state: &InterfaceState);

    /// Makes a PPI of this CPU active, as if it had been acknowledged.
    fn activate(intid: u32);

    /// Sends [`SGI_RESCHEDULE`] to the physical CPU with `token`, ordered behind the stores before it.
    fn reschedule(token: KickToken);
}

/// Which vectors a vCPU needs. A switch compares a byte to tell whether they are in use already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VectorsKind(NonZeroU8);

impl VectorsKind {
    /// Of a vCPU with a GIC of `model`, `timed` or not.
    pub const fn new(model: Model, timed: bool) -> Self {
        Self(NonZeroU8::MIN.saturating_add(2 * model as u8 + timed as u8))
    }
}

/// Returns the address of the vectors of `G`, guarded as this CPU needs: of the timed ones for a vCPU that keeps
/// statistics.
pub fn vectors_of<G: Gic>(timed: bool) -> u64 {
    let (table, guarded) = G::vectors(timed);
    cpu::this().guard.table(table, guarded)
}

/// Makes this CPU take exits by vectors that [`vectors_of`] returned.
pub fn use_vectors(vectors: u64) {
    // SAFETY: complete vector tables, which do the same; EL2 itself takes no exceptions.
    unsafe { regs::VBAR_EL2.write(vectors) };
    cpu::isb();
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
