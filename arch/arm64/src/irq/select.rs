// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which GIC this machine has: what is generic over it picks its instance here.

use core::sync::atomic::{AtomicBool, Ordering};

use turnstile_vgic::{Encode, Model, VirtualInterface};
use turnstile_vm::attention::KickToken;

use super::gic::{CpuInterface, Gic};

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
        match $crate::irq::select::is_gicv2() {
            false => $function::<$crate::irq::gicv3::Gicv3>($($argument),*),
            true => $function::<$crate::irq::gicv2::Gicv2>($($argument),*),
        }
    };
}
pub(crate) use in_gic;

/// Calls a function that is generic over the GIC with that of this machine as a guest with a GIC of `$model` sees it.
macro_rules! in_gic_of {
    ($model:expr, $function:ident($($argument:expr),* $(,)?)) => {
        match ($crate::irq::select::is_gicv2(), $model) {
            (true, _) => $function::<$crate::irq::gicv2::Gicv2>($($argument),*),
            (false, turnstile_vgic::Model::Gicv3) => $function::<$crate::irq::gicv3::Gicv3>($($argument),*),
            (false, turnstile_vgic::Model::Gicv2) => $function::<$crate::irq::legacy::Gicv3Legacy>($($argument),*),
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
pub(super) fn set_backed(backed: bool) {
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

/// Returns how the virtual CPU interface composes the list registers of a guest with a GIC of `model`.
pub fn encoding(model: Model) -> Encode {
    fn of<G: Gic>() -> Encode {
        G::Interface::encode
    }
    in_gic_of!(model, of())
}

/// Returns how many priority bits list registers keep.
pub fn priority_bits() -> u32 {
    fn of<G: Gic>() -> u32 {
        G::Interface::priority_bits()
    }
    in_gic!(of())
}
