// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Trapped system registers: one indexed load from encoding to meaning (seed 000's binary search, taken to its
//! end), decided at compile time.

use turnstile_trapmap::{Group, SysReg, TrapMap};
use turnstile_vgic::{Outcome, SgiRegister, Vgic};
use turnstile_vm::attention::{Posted, Reasons};

use super::inject;
use super::light::{Code, done, resident, skip, wake};
use crate::irq::{Gic, Gicv2, Gicv3};
use crate::state::trapped_pmu::Register;
use crate::state::{Facility, pmu};
use crate::vcpu::facility;
use crate::vcpu::frame::Frame;
use crate::vm::{Owned, Vcpu, Vm};

/// What a trapped register is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Trap {
    /// Not part of this machine: UNDEFINED.
    Undefined,
    /// Reads as zero, ignores writes.
    Ignored,
    /// op0=3, op1=0, CRn=0: by table.
    Id,
    /// Sends SGIs.
    Sgi(SgiRegister),
    /// Deactivates an interrupt that may be in no list register.
    Deactivate,
    /// PMSELR_EL0, if the VM has a PMU: by itself, because it is the one that guests trap on most.
    PmuSelect,
    /// Any other PMU register, if the VM has a PMU.
    Pmu(Register),
    /// Part of a facility, which the first access gives to the vCPU.
    Facility(Facility),
    /// OSLAR_EL1.
    OsLock,
    /// OSLSR_EL1.
    OsLockStatus,
}

const fn reg(op0: u8, op1: u8, crn: u8, crm: u8, op2: u8) -> SysReg {
    SysReg::new(op0, op1, crn, crm, op2)
}

const fn group(op0: u8, op1: u8, crn: u8, crm: (u8, u8), op2: (u8, u8)) -> Group {
    Group { op0, op1, crn, crm, op2 }
}

/// Blocks of registers that are treated alike.
pub(super) const GROUPS: &[(Group, Trap)] = &[
    (group(3, 0, 0, (1, 7), (0, 7)), Trap::Id),
    // PMEVCNTR<n>_EL0 and PMEVTYPER<n>_EL0: with N = 0 none exists, accesses are ignored.
    (group(3, 3, 14, (8, 15), (0, 7)), Trap::Pmu(Register::Quiet)),
    // DBGBVR<n>_EL1, DBGBCR<n>_EL1, DBGWVR<n>_EL1 and DBGWCR<n>_EL1.
    (group(2, 0, 0, (0, 15), (4, 7)), Trap::Facility(Facility::Debug)),
    // Keys of pointer authentication.
    (group(3, 0, 2, (1, 3), (0, 3)), Trap::Facility(Facility::Pauth)),
];

/// Registers by themselves.
pub(super) const SINGLE: &[(SysReg, Trap)] = &[
    (reg(3, 0, 1, 0, 1), Trap::Ignored), // ACTLR_EL1
    (reg(3, 0, 12, 11, 5), Trap::Sgi(SgiRegister::Sgi1r)),
    (reg(3, 0, 12, 11, 6), Trap::Sgi(SgiRegister::Asgi1r)),
    (reg(3, 0, 12, 11, 7), Trap::Sgi(SgiRegister::Sgi0r)),
    (reg(3, 0, 12, 11, 1), Trap::Deactivate), // ICC_DIR_EL1
    // The debug communications channel: present, and nobody at the other end.
    (reg(2, 3, 0, 1, 0), Trap::Ignored),                    // MDCCSR_EL0
    (reg(2, 0, 0, 2, 0), Trap::Ignored),                    // MDCCINT_EL1
    (reg(2, 3, 0, 4, 0), Trap::Ignored),                    // DBGDTR_EL0
    (reg(2, 3, 0, 5, 0), Trap::Ignored),                    // DBGDTRTX_EL0, DBGDTRRX_EL0
    (reg(2, 0, 0, 0, 2), Trap::Ignored),                    // OSDTRRX_EL1
    (reg(2, 0, 0, 3, 2), Trap::Ignored),                    // OSDTRTX_EL1
    (reg(2, 0, 0, 2, 2), Trap::Facility(Facility::Debug)),  // MDSCR_EL1
    (reg(2, 0, 7, 8, 6), Trap::Facility(Facility::Debug)),  // DBGCLAIMSET_EL1
    (reg(2, 0, 7, 9, 6), Trap::Facility(Facility::Debug)),  // DBGCLAIMCLR_EL1
    (reg(2, 0, 7, 14, 6), Trap::Facility(Facility::Debug)), // DBGAUTHSTATUS_EL1
    (reg(2, 0, 1, 0, 4), Trap::OsLock),
    (reg(2, 0, 1, 1, 4), Trap::OsLockStatus),
    // No debug ROM, no OS double lock, nobody who asks that the CPU be kept powered.
    (reg(2, 0, 1, 0, 0), Trap::Ignored), // MDRAR_EL1
    (reg(2, 0, 1, 3, 4), Trap::Ignored), // OSDLR_EL1
    (reg(2, 0, 1, 4, 4), Trap::Ignored), // DBGPRCR_EL1
    (reg(3, 3, 9, 12, 0), Trap::Pmu(Register::Control)),
    (reg(3, 3, 9, 12, 1), Trap::Pmu(Register::EnableSet)),
    (reg(3, 3, 9, 12, 2), Trap::Pmu(Register::EnableClear)),
    (reg(3, 3, 9, 12, 3), Trap::Pmu(Register::Quiet)), // PMOVSCLR_EL0
    (reg(3, 3, 9, 12, 4), Trap::Pmu(Register::Quiet)), // PMSWINC_EL0
    (reg(3, 3, 9, 12, 5), Trap::PmuSelect),
    (reg(3, 3, 9, 12, 6), Trap::Pmu(Register::Quiet)), // PMCEID0_EL0
    (reg(3, 3, 9, 12, 7), Trap::Pmu(Register::Quiet)), // PMCEID1_EL0
    (reg(3, 3, 9, 13, 0), Trap::Pmu(Register::Cycles)),
    (reg(3, 3, 9, 13, 1), Trap::Pmu(Register::SelectedType)),
    (reg(3, 3, 9, 13, 2), Trap::Pmu(Register::Quiet)), // PMXEVCNTR_EL0
    (reg(3, 3, 9, 14, 0), Trap::Pmu(Register::UserEnable)),
    (reg(3, 3, 9, 14, 3), Trap::Pmu(Register::Quiet)), // PMOVSSET_EL0
    (reg(3, 0, 9, 14, 1), Trap::Pmu(Register::Quiet)), // PMINTENSET_EL1
    (reg(3, 0, 9, 14, 2), Trap::Pmu(Register::Quiet)), // PMINTENCLR_EL1
    (reg(3, 0, 9, 14, 6), Trap::Pmu(Register::Quiet)), // PMMIR_EL1
    (reg(3, 3, 14, 15, 7), Trap::Pmu(Register::CycleFilter)),
];

pub(super) static TRAPS: TrapMap<Trap> = TrapMap::with_groups(Trap::Undefined, GROUPS, SINGLE);

/// How a trapped register finds its meaning, and an SGI its targets.
pub(super) trait Lookup {
    /// Looks up the meaning of the register that a syndrome names.
    fn trap(iss: u32) -> Trap;
    /// Decodes an SGI register's value that names its targets: the vCPUs it reaches.
    fn targets(vgic: &Vgic, register: SgiRegister, value: u64) -> impl Iterator<Item = usize>;
}

/// One indexed load each.
pub(super) struct Indexed;

impl Lookup for Indexed {
    #[inline(always)] // One load.
    fn trap(iss: u32) -> Trap {
        TRAPS.lookup(iss)
    }

    #[inline(always)] // Hands on.
    fn targets(vgic: &Vgic, register: SgiRegister, value: u64) -> impl Iterator<Item = usize> {
        vgic.sgi_targets(register, value)
    }
}

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

/// Sends an SGI: to the vCPU itself by a list register, to others by their inboxes.
#[inline(always)] // Two callers: the light exit and its full twin.
fn send_sgi<G: Gic, L: Lookup>(vcpu: &Vcpu, owned: &mut Owned, register: SgiRegister, value: u64) -> Outcome {
    let intid = SgiRegister::intid(value);
    if SgiRegister::is_broadcast(value) {
        broadcast_sgi::<G>(vcpu, register, value);
        return Outcome::Done;
    }
    let mut outcome = Outcome::Done;
    for target in L::targets(&vcpu.vm.vgic, register, value) {
        if target == vcpu.index {
            outcome = owned.gic.inject_sgi(&mut G::interface(), intid);
        } else {
            post_sgi::<G>(vcpu.vm, target, intid);
        }
    }
    outcome
}

/// Posts an SGI to another vCPU: one atomic operation, and a kick if it is in its guest.
#[inline(always)] // Hot: once per target.
fn post_sgi<G: Gic>(vm: &Vm, target: usize, intid: u32) {
    if let Some(target) = vm.vcpu(target) {
        target.notify_other::<G>(target.attention.post(Reasons::sgi(intid)));
    }
}

/// Sends an SGI to all other vCPUs.
#[inline(never)] // SGIs that name their targets are not to pay for its registers.
fn broadcast_sgi<G: Gic>(vcpu: &Vcpu, register: SgiRegister, value: u64) {
    for target in vcpu.vm.vgic.sgi_broadcast(register, value, vcpu.index) {
        post_sgi::<G>(vcpu.vm, target, SgiRegister::intid(value));
    }
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

/// A write of an SGI register. Usually it names one vCPU, another one, which is in its guest: that is a leaf without a
/// stack frame of its own. All else is behind a tail call.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
#[inline(never)] // Behind a tail call, too: the handlers of trapped registers are laid out without it.
fn light_sgi<G: Gic, L: Lookup>(frame: &mut Frame, register: SgiRegister, value: u64) -> u32 {
    let vcpu = resident(frame);
    if SgiRegister::is_broadcast(value) {
        return light_sgis::<G, L>(frame, register, value);
    }
    let mut targets = L::targets(&vcpu.vm.vgic, register, value);
    let (Some(first), None) = (targets.next(), targets.next()) else {
        return light_sgis::<G, L>(frame, register, value);
    };
    if first == vcpu.index {
        return light_self_sgi::<G>(frame, SgiRegister::intid(value));
    }
    skip();
    if let Some(target) = vcpu.vm.vcpu(first) {
        match target.attention.post(Reasons::sgi(SgiRegister::intid(value))) {
            Posted::Seen => {}
            Posted::Kick(token) => G::kick(token),
            Posted::Wake => return wake::<G>(vcpu, target),
        }
    }
    done(vcpu)
}

/// An SGI to the sender alone: by a list register.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
#[inline(never)] // Needs a stack frame.
fn light_self_sgi<G: Gic>(frame: &mut Frame, intid: u32) -> u32 {
    let vcpu = resident(frame);
    // SAFETY: an exit handler of the CPU where the vCPU is resident; taken once in this exit.
    let owned = unsafe { vcpu.owned() };
    skip();
    match owned.gic.inject_sgi(&mut G::interface(), intid) {
        Outcome::Done => done(vcpu),
        Outcome::Slow => Code::SETTLE,
    }
}

/// A write of an SGI register that names several vCPUs, or the sender.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
#[inline(never)] // Needs a stack frame, which the other light exits are not to pay for.
fn light_sgis<G: Gic, L: Lookup>(frame: &mut Frame, register: SgiRegister, value: u64) -> u32 {
    let vcpu = resident(frame);
    // SAFETY: an exit handler of the CPU where the vCPU is resident; taken once in this exit.
    let owned = unsafe { vcpu.owned() };
    let outcome = send_sgi::<G, L>(vcpu, owned, register, value);
    skip();
    match outcome {
        Outcome::Done => done(vcpu),
        Outcome::Slow => Code::SETTLE,
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
