// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Trapped system registers, in both tiers. What each register is, `trapped.rs` says.

use turnstile_vgic::{Outcome, SgiRegister};

use super::inject;
use super::light::{Code, Read, done, resident, skip, wake};
use super::sgi::{light_sgi, send_sgi, wide_sgi};
use super::trapped::{Indexed, Lookup, Trap};
use crate::irq::Gic;
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

#[inline(always)] // Two instructions; one of them is the load.
fn id_register(vcpu: &Vcpu, n: u8) -> u64 {
    vcpu.id_registers[usize::from(n) & 63]
}

/// Carries out an access; `value` is what a write carries.
fn access<G: Gic, L: Lookup>(vcpu: &'static Vcpu, owned: &mut Owned, iss: u32, value: u64) -> Access {
    let read = iss & ISS_READ != 0;
    match L::trap(iss) {
        Trap::Undefined => Access::Undefined,
        Trap::Ignored => Access::Value(0),
        Trap::Id(n) if read => Access::Value(id_register(vcpu, n)),
        Trap::Id(_) => Access::Undefined,
        Trap::Sgi1 | Trap::Sgi(_) | Trap::Deactivate if read || !G::SYSTEM_REGISTERS => Access::Undefined,
        Trap::Sgi1 => sgi::<G, L>(vcpu, owned, SgiRegister::Sgi1r, value),
        Trap::Sgi(register) => sgi::<G, L>(vcpu, owned, register, value),
        Trap::Deactivate => {
            vcpu.vm.with_gic::<G, _>(|cx| owned.gic.dir(cx, value as u32 & 0xff_ffff));
            Access::Settle
        }
        Trap::PmuSelect | Trap::Pmu(_) if !vcpu.pmu => match vcpu.vm.offer.pmu {
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

/// Sends SGIs.
fn sgi<G: Gic, L: Lookup>(vcpu: &Vcpu, owned: &mut Owned, register: SgiRegister, value: u64) -> Access {
    match send_sgi::<G, L>(vcpu, owned, register, value) {
        Outcome::Done => Access::Value(0),
        Outcome::Slow => Access::Settle,
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

/// Reads a register that is hot in real guests (identification, the PMU's selector). The same whatever the transfer register:
/// the vector delivers the value.
#[inline(always)] // The light handler, and with other lookups those of images for ablation.
pub(super) fn light_read<L: Lookup>(frame: &Frame, esr: u64) -> Read {
    let vcpu = resident(frame);
    let value = match L::trap(esr as u32) {
        Trap::Id(n) => id_register(vcpu, n),
        Trap::PmuSelect if vcpu.pmu => {
            // SAFETY: an exit handler of the CPU where the vCPU is resident; taken once in this exit.
            unsafe { vcpu.facilities() }.trapped_pmu.select()
        }
        _ => return Read::left(Code::SYNC),
    };
    skip();
    Read::done(vcpu, esr, value)
}

/// Writes a register that is hot in real guests (SGIs, the PMU's selector). The vector has fetched the value.
#[inline(always)] // As above.
pub(super) fn light_write<G: Gic, L: Lookup>(frame: &mut Frame, esr: u64, value: u64) -> u32 {
    match L::trap(esr as u32) {
        Trap::Sgi1 if G::SYSTEM_REGISTERS => light_sgi::<G, L>(frame, esr, value),
        Trap::PmuSelect if resident(frame).pmu => {
            let vcpu = resident(frame);
            // SAFETY: as above.
            unsafe { vcpu.facilities() }.trapped_pmu.set_select(value);
            skip();
            done(vcpu)
        }
        _ => Code::SYNC,
    }
}

/// What is left of an SGI.
#[inline(always)] // As above.
pub(super) fn wide_write<G: Gic, L: Lookup>(frame: &mut Frame, code: u32) -> u32 {
    match L::trap(frame.left.esr as u32) {
        _ if code == Code::WAKE => wake::<G>(frame),
        Trap::Sgi1 => wide_sgi::<G, L>(frame),
        _ => Code::SYNC,
    }
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
