// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Handlers as they would be without the techniques that act in handlers; see [`super`].

use core::sync::atomic::{AtomicUsize, Ordering};

use turnstile_techniques::{Set, Technique};
use turnstile_trapmap::{Binary, Linear, SysReg, by_encoding, flat, flat_len};
use turnstile_vgic::{SearchedTargets, SgiRegister};
use turnstile_vm::attention::Reasons;

use crate::cpu::class;
use crate::exit::attend::attend;
use crate::exit::light::Code;
use crate::exit::sysreg::{self, Full, OTHER};
use crate::exit::trapped::{GROUPS, Indexed, Lookup, SINGLE, TRAPS, Trap, by_table};
use crate::exit::whole::{self, Handler};
use crate::irq::{Gic, Gicv3};
use crate::vcpu::frame::Frame;
use crate::vm::{Owned, Vcpu};

/// How many registers trap.
const TRAPPED: usize = flat_len(GROUPS, SINGLE);
/// All of them, in the order that the binary search wants, and in that of the architecture.
static SORTED: [(SysReg, Trap); TRAPPED] = flat(GROUPS, SINGLE);
static LISTED: [(SysReg, Trap); TRAPPED] = by_encoding(SORTED);
static LINEAR: Linear<Trap> = Linear::new(Trap::Undefined, &LISTED);
static BINARY: Binary<Trap> = Binary::new(Trap::Undefined, &SORTED);

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
            fn targets(vcpu: &Vcpu, register: SgiRegister, value: u64) -> impl Iterator<Item = usize> {
                $targets(vcpu, register, value)
            }
        }
    )*};
}

lookups! {
    IndexedAndSearch: TRAPS, by_search;
    LinearAndTable: LINEAR, by_table;
    LinearAndSearch: LINEAR, by_search;
    BinaryAndTable: BINARY, by_table;
    BinaryAndSearch: BINARY, by_search;
}

/// Finds the targets of an SGI by asking one vCPU after the other.
#[inline(always)] // Hands on.
fn by_search(vcpu: &Vcpu, register: SgiRegister, value: u64) -> SearchedTargets<'static> {
    vcpu.vm.vgic.search_sgi_targets(register, value)
}

/// The light and the full handler with a lookup.
fn with<L: Lookup>() -> Option<(Handler, Full)> {
    Some((whole::system_register::<Gicv3, L>, sysreg::full_with::<Gicv3, L>))
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
/// Looks at what the reasons name.
pub fn look(frame: &mut Frame, vcpu: &'static Vcpu, owned: &mut Owned, reasons: Reasons) {
    attend::<Gicv3>(frame, vcpu, owned, reasons);
}

/// Acknowledges the interrupt and leaves the rest to the full tier.
extern "C" fn irq_to_full(_: &mut Frame) -> u32 {
    Code::IRQ | Gicv3::acknowledge().0 & 0xff_ffff
}

/// Chooses the handlers of a set.
pub fn take_off(off: Set) {
    let mut handlers = whole::handlers::<Gicv3, Indexed>();
    let mut irq: extern "C" fn(&mut Frame) -> u32 = whole::interrupt::<Gicv3>;
    if let Some((light, full)) = sysreg_handlers(off) {
        handlers[class::SYSTEM_REGISTER as usize] = light;
        OTHER.call_once(|| full);
    }
    if off.contains(Technique::LightExit) {
        handlers = [whole::other; 64];
        irq = irq_to_full;
    }
    for (place, handler) in NAIVE_HANDLERS.iter().zip(handlers) {
        place.store(handler as usize, Ordering::Relaxed);
    }
    NAIVE_IRQ.store(irq as usize, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::regs::fakes;
    use crate::exit::tests::machine;

    /// What an access to a trapped register does: the answer of the light tier, or else the registers and accesses
    /// of the full one.
    fn access(handlers: (Handler, Full), iss: u32) -> (u32, Vec<u64>, Vec<fakes::Access>) {
        let (vm, mut frame) = machine(2, true);
        frame.set(3, 1 << 24 | 1);
        let code = handlers.0(&mut frame, u64::from(iss));
        if code == Code::SYNC {
            let vcpu = vm.vcpus()[0];
            // SAFETY: the test's only thread.
            handlers.1(&mut frame, vcpu, unsafe { vcpu.owned() }, iss);
        }
        (code, (0..31).map(|n| frame.get(n)).collect(), fakes::take_log())
    }

    #[test]
    fn every_lookup_does_the_same() {
        let usual: (Handler, Full) =
            (whole::system_register::<Gicv3, Indexed>, sysreg::full_with::<Gicv3, Indexed> as Full);
        let others: Vec<(Handler, Full)> = (0..8)
            .map(|bits| {
                let techniques =
                    [Technique::IndexedDispatch, Technique::IndexedVsBinary, Technique::SgiRoutes];
                let chosen = techniques.into_iter().enumerate().filter(|(n, _)| bits >> n & 1 != 0);
                chosen.fold(Set::NONE, |set, (_, technique)| set.with(technique))
            })
            .filter_map(sysreg_handlers)
            .collect();
        assert_eq!(others.len(), 7, "all but none at all");
        let trapped = LISTED.iter().map(|(register, _)| *register);
        for register in trapped.chain([SysReg::new(3, 0, 1, 0, 0), SysReg::new(3, 7, 15, 15, 7)]) {
            let (op0, op1, op2) = (u32::from(register.op0()), u32::from(register.op1()), register.op2());
            let (crn, crm) = (u32::from(register.crn()), u32::from(register.crm()));
            let register_bits = op0 << 20 | u32::from(op2) << 17 | op1 << 14 | crn << 10 | crm << 1;
            for rest in [3 << 5, 3 << 5 | 1] {
                let iss = register_bits | rest;
                let expected = access(usual, iss);
                for other in &others {
                    assert_eq!(access(*other, iss), expected, "{register} {rest:#x}");
                }
            }
        }
    }
}
