// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Handlers as they would be without the techniques that act in handlers; see [`crate::naive`].

use core::sync::atomic::{AtomicUsize, Ordering};

use spin::Once;
use turnstile_techniques::{Set, Technique};
use turnstile_trapmap::{Binary, Linear, SysReg, flat, flat_len};
use turnstile_vgic::{SgiRegister, Vgic};

use super::sysreg::{self, GROUPS, Lookup, SINGLE, TRAPS, Trap};
use super::{Code, Handler, LIGHT_HANDLERS, class};
use crate::frame::Frame;
use crate::irq::gicv3;
use crate::vcpu::{Owned, Vcpu};

/// All trapped registers in ascending order.
static LIST: [(SysReg, Trap); flat_len(GROUPS, SINGLE)] = flat(GROUPS, SINGLE);
static LINEAR: Linear<Trap> = Linear::new(Trap::Undefined, &LIST);
static BINARY: Binary<Trap> = Binary::new(Trap::Undefined, &LIST);

/// Defines lookups: how each finds a trapped register's meaning, and by which function an SGI's targets.
macro_rules! lookups {
    ($($name:ident: $table:expr, $targets:ident;)*) => {$(
        struct $name;

        impl Lookup for $name {
            #[inline(always)] // Into one handler of each tier.
            fn trap(iss: u32) -> Trap {
                $table.lookup(iss)
            }

            #[inline(always)] // Hands on.
            fn targets(
                vgic: &Vgic,
                register: SgiRegister,
                value: u64,
                sender: usize,
            ) -> (u32, impl Iterator<Item = usize>) {
                vgic.$targets(register, value, sender)
            }
        }
    )*};
}

lookups! {
    IndexedAndSearch: TRAPS, search_sgi_targets;
    LinearAndTable: LINEAR, sgi_targets;
    LinearAndSearch: LINEAR, search_sgi_targets;
    BinaryAndTable: BINARY, sgi_targets;
    BinaryAndSearch: BINARY, search_sgi_targets;
}

/// A full handler of trapped system registers.
type Full = fn(&mut Frame, &Vcpu, &mut Owned, u32);

/// The light and the full handler with a lookup.
fn with<L: Lookup>() -> Option<(Handler, Full)> {
    Some((sysreg::light_with::<L>, sysreg::full_with::<L>))
}

/// The handlers of trapped system registers that go without the techniques of a set; `None` if the usual ones do.
/// Without any technique the search is linear.
fn sysreg_handlers(off: Set) -> Option<(Handler, Full)> {
    let linear = off.contains(Technique::IndexedDispatch);
    let binary = off.contains(Technique::IndexedVsBinary);
    match (linear, binary, off.contains(Technique::SgiRoutes)) {
        (true, _, false) => with::<LinearAndTable>(),
        (true, _, true) => with::<LinearAndSearch>(),
        (false, true, false) => with::<BinaryAndTable>(),
        (false, true, true) => with::<BinaryAndSearch>(),
        (false, false, true) => with::<IndexedAndSearch>(),
        (false, false, false) => None,
    }
}

/// The handlers of synchronous exceptions by class, for `naive.S`.
#[cfg_attr(target_os = "none", unsafe(no_mangle))]
pub static NAIVE_HANDLERS: [AtomicUsize; 64] = [const { AtomicUsize::new(0) }; 64];
/// The handler of interrupts, for `naive.S`.
#[cfg_attr(target_os = "none", unsafe(no_mangle))]
pub static NAIVE_IRQ: AtomicUsize = AtomicUsize::new(0);
/// The full tier's handler of trapped system registers, if it is not the usual one.
static FULL: Once<Full> = Once::new();

/// Returns the full tier's handler of trapped system registers, if it is not the usual one.
pub fn full_sysreg() -> Option<Full> {
    FULL.get().copied()
}

/// Acknowledges the interrupt and leaves the rest to the full tier.
extern "C" fn irq_to_full(_: &mut Frame) -> u32 {
    Code::IRQ | gicv3::acknowledge() & 0xff_ffff
}

/// Chooses the handlers of a set.
pub fn take_off(off: Set) {
    let mut handlers = LIGHT_HANDLERS;
    let mut irq: extern "C" fn(&mut Frame) -> u32 = super::turnstile_light_irq;
    if let Some((light, full)) = sysreg_handlers(off) {
        handlers[class::SYSTEM_REGISTER as usize] = light;
        FULL.call_once(|| full);
    }
    if off.contains(Technique::LightExit) {
        handlers = [super::turnstile_light_other; 64];
        irq = irq_to_full;
    }
    for (place, handler) in NAIVE_HANDLERS.iter().zip(handlers) {
        place.store(handler as usize, Ordering::Relaxed);
    }
    NAIVE_IRQ.store(irq as usize, Ordering::Relaxed);
}
