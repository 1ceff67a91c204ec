// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Trapped system registers, in both tiers. What each register is, `trapped.rs` says.

use turnstile_vgic::Outcome;

use super::inject;
use super::light::{Code, done, resident, skip};
use super::sgi::{light_sgi, send_sgi};
use super::trapped::{Indexed, Lookup, Trap};
use crate::irq::{Gic, Gicv2, Gicv3};
use crate::state::{Facility, pmu};
use crate::vcpu::facility;
use crate::vcpu::frame::Frame;
use crate::vm::{Owned, Vcpu};

const ISS_READ: u32 = 1;

/// The transfer register of the trapped instruction.
#[inline(always)] // One bit-field extract.
const fn transfer(iss: u32) -> usize {
    (iss >> 5 & 31) as usize
}

/// What an access comes to.
enum Access {
    /// Done; the value is for the transfer register if it was a read.
    Value(u64),
    /// Done, and the list registers need planning.
    Settle,
    /// The register does not trap any more: the instruction is to be executed again.
    Again,
    /// The instruction is UNDEFINED here.
    Undefined,
}

#[inline(always)] // Three instructions; one of them is the load.
fn id_register(vcpu: &Vcpu, iss: u32) -> u64 {
    let index = (iss << 2 & 0x38 | iss >> 17 & 7) as usize;
    vcpu.vm.id_registers[index & 63]
}

/// Carries out an access; `value` is what a write carries.
fn access<G: Gic, L: Lookup>(vcpu: &'static Vcpu, owned: &mut Owned, iss: u32, value: u64) -> Access {
    let read = iss & ISS_READ != 0;
    match L::trap(iss) {
        Trap::Undefined => Access::Undefined,
        Trap::Ignored => Access::Value(0),
        Trap::Id if read => Access::Value(id_register(vcpu, iss)),
        Trap::Id => Access::Undefined,
        Trap::Sgi(_) | Trap::Deactivate if read || !G::SYSTEM_REGISTERS => Access::Undefined,
        Trap::Sgi(register) => match send_sgi::<G, L>(vcpu, owned, register, value) {
            Outcome::Done => Access::Value(0),
            Outcome::Slow => Access::Settle,
        },
        Trap::Deactivate => {
            vcpu.vm.with_gic::<G, _>(|cx| owned.gic.dir(cx, value as u32 & 0xff_ffff));
            Access::Settle
        }
        Trap::PmuSelect | Trap::Pmu(_) if !vcpu.vm.pmu => match vcpu.vm.offer.pmu {
            pmu::Kind::Owned => claim(vcpu, Facility::Pmu),
            _ => Access::Undefined,
        },
        Trap::PmuSelect | Trap::Pmu(_) => trapped_pmu::<L>(vcpu, iss, value),
        Trap::Facility(Facility::Pauth) if !vcpu.vm.offer.pauth => Access::Undefined,
        Trap::Facility(facility) => claim(vcpu, facility),
        Trap::OsLock if read => Access::Undefined,
        Trap::OsLock => {
            facility::set_os_lock(vcpu, value);
            Access::Value(0)
        }
        Trap::OsLockStatus if read => Access::Value(facility::os_lock_status(vcpu)),
        Trap::OsLockStatus => Access::Undefined,
    }
}

/// Gives the vCPU a facility. A register that still traps then is none.
fn claim(vcpu: &'static Vcpu, facility: Facility) -> Access {
    if facility::claim(vcpu, facility) { Access::Again } else { Access::Undefined }
}

/// Carries out an access to a register of a trapped PMU.
fn trapped_pmu<L: Lookup>(vcpu: &Vcpu, iss: u32, value: u64) -> Access {
    // SAFETY: an exit handler of the CPU where the vCPU is resident, between calls of `facility`.
    let pmu = unsafe { &mut vcpu.facilities().trapped_pmu };
    let read = iss & ISS_READ != 0;
    match L::trap(iss) {
        Trap::Pmu(register) if read => return Access::Value(pmu.read(register)),
        Trap::Pmu(register) => pmu.write(register, value),
        _ if read => return Access::Value(pmu.select()),
        _ => pmu.set_select(value),
    }
    Access::Value(0)
}

/// The body of the light handler, for a [`Gic`] and with a [`Lookup`].
///
/// A macro: as a generic function that is inlined, its branches are laid out otherwise, at the cost of the first.
macro_rules! light_sysreg {
    ($frame:ident, $esr:ident, $gic:ty, $lookup:ty, $get:ident, $set:ident) => {{
        let iss = $esr as u32;
        let rt = transfer(iss);
        let vcpu = resident($frame);
        let value = match <$lookup>::trap(iss) {
            Trap::Id if iss & ISS_READ != 0 => id_register(vcpu, iss),
            Trap::Sgi(register) if <$gic>::SYSTEM_REGISTERS && iss & ISS_READ == 0 => {
                return light_sgi::<$gic, $lookup>($frame, register, $frame.$get(rt));
            }
            Trap::PmuSelect if vcpu.vm.pmu => {
                // SAFETY: an exit handler of the CPU where the vCPU is resident; taken once in this exit.
                let pmu = unsafe { &mut vcpu.facilities().trapped_pmu };
                if iss & ISS_READ == 0 {
                    pmu.set_select($frame.$get(rt));
                    skip();
                    return done(vcpu);
                }
                pmu.select()
            }
            _ => return Code::SYNC,
        };
        $frame.$set(rt, value);
        skip();
        done(vcpu)
    }};
}

/// The registers that are hot in real guests (identification, SGIs, the PMU's selector), by way of the transfer registers
/// that the light tier holds.
#[cfg_attr(target_os = "none", unsafe(no_mangle), unsafe(link_section = ".text.hot"))]
pub(super) extern "C" fn turnstile_light_sysreg(frame: &mut Frame, esr: u64) -> u32 {
    if !Frame::is_light(transfer(esr as u32)) {
        return not_held(esr as u32);
    }
    light_sysreg!(frame, esr, Gicv3, Indexed, light, set_light)
}

/// [`turnstile_light_sysreg`] of the vectors of a GICv2.
#[cfg_attr(target_os = "none", unsafe(no_mangle), unsafe(link_section = ".text.hot"))]
pub(super) extern "C" fn turnstile_light_sysreg_gicv2(frame: &mut Frame, esr: u64) -> u32 {
    if !Frame::is_light(transfer(esr as u32)) {
        return not_held(esr as u32);
    }
    light_sysreg!(frame, esr, Gicv2, Indexed, light, set_light)
}

/// Says what becomes of an access by way of a transfer register that the light tier does not hold: a write is light
/// when the register has been stored, a read is full.
#[inline(always)] // Three instructions.
fn not_held(iss: u32) -> u32 {
    if iss & ISS_READ == 0 { Code::PRESERVED } else { Code::SYNC }
}

/// Writes by way of the other transfer registers, which have been stored.
#[cfg(any(target_os = "none", test))]
#[inline(always)] // One caller for each GIC.
pub(super) fn light_preserved<G: Gic>(frame: &mut Frame, esr: u64) -> u32 {
    light_sysreg!(frame, esr, G, Indexed, preserved, set)
}

/// The same with another way to look things up.
#[cfg(feature = "ablation")]
pub(super) extern "C" fn light_with<L: Lookup>(frame: &mut Frame, esr: u64) -> u32 {
    if !Frame::is_light(transfer(esr as u32)) {
        return Code::SYNC;
    }
    light_sysreg!(frame, esr, Gicv3, L, light, set_light)
}

/// A full handler of trapped system registers.
#[cfg(feature = "ablation")]
pub(super) type Full = fn(&mut Frame, &'static Vcpu, &mut Owned, u32);

/// The full handler, if it is not the usual one.
#[cfg(feature = "ablation")]
pub(super) static OTHER: spin::Once<Full> = spin::Once::new();

/// Every trapped register, with every transfer register.
pub(super) fn full<G: Gic>(frame: &mut Frame, vcpu: &'static Vcpu, owned: &mut Owned, iss: u32) {
    #[cfg(feature = "ablation")]
    if let Some(full) = OTHER.get() {
        return full(frame, vcpu, owned, iss);
    }
    full_with::<G, Indexed>(frame, vcpu, owned, iss);
}

/// The full handler with a way to look things up.
pub(super) fn full_with<G: Gic, L: Lookup>(
    frame: &mut Frame,
    vcpu: &'static Vcpu,
    owned: &mut Owned,
    iss: u32,
) {
    let rt = transfer(iss);
    match access::<G, L>(vcpu, owned, iss, frame.get(rt)) {
        Access::Value(value) => {
            if iss & ISS_READ != 0 {
                frame.set(rt, value);
            }
            skip();
        }
        Access::Settle => skip(),
        Access::Again => {}
        Access::Undefined => inject::undefined(),
    }
}
