// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stage 2 faults: accesses to emulated devices, whose syndrome describes the instruction (Arm ARM D24.2.41, "ISS encoding for an
//! exception from a Data Abort"), first touches of memory that is mapped on demand, and flash.

use turnstile_arch_common::demand::Touch;
use turnstile_exitstat::Event;
use turnstile_vgic::Outcome;
use turnstile_vm::attention::Reasons;

use super::decode::{Decoded, FAULT, FAULT_TRANSLATION, ISV, S1PTW, SAS, SAS_WORD, SSE, WNR, fault_address};
use super::inject::{self, Abort};
use super::light::{Code, Read, done, leave, resident, skip, wake};
use super::sgi::post_light;
use super::{flash, service};
use crate::cpu::{self, regs, relax};
use crate::irq::Gic;
use crate::vcpu::frame::{Frame, Left};
use crate::vm::{Monitor, Owned, Peers, Vcpu};

/// The level a stage 1 walk had reached is not known from a stage 2 fault: the last one is reported.
const WALK_LEVEL: u64 = 3;

/// A read of a distributor register that needs nothing but the VM's shared state, or of what lies beyond all of the VM's memory and
/// devices, which is left to the wide handler. The same whatever the transfer register: the
/// vector delivers the value.
#[inline(always)] // The light handler, and that of images for ablation.
pub(super) fn light_read(frame: &mut Frame, esr: u64) -> Read {
    let iss = esr as u32;
    // A zero-extending read whose syndrome is valid, not by a table walk, missing in stage 2.
    if iss & (ISV | SSE | S1PTW | WNR | FAULT) != ISV | FAULT_TRANSLATION {
        return Read::left(Code::SYNC);
    }
    let vcpu = resident(frame);
    let address = fault_address();
    let offset = address.wrapping_sub(vcpu.vm.gicd.base);
    if offset >= vcpu.vm.gicd.size {
        if address >= vcpu.vm.beyond {
            // It needs no address, but has it.
            return Read::left_at(Code::ABSENT, address);
        }
        return Read::left_at(frame.aborts, address);
    }
    match vcpu.vm.vgic.dist_read_light(offset as u32, 1 << (iss >> 22 & 3)) {
        Some(value) => {
            skip();
            Read::done(vcpu, esr, value)
        }
        // The address, from which the offset is found again: one register less is in use until here.
        None => Read::left(leave(frame, Code::WIDE, esr, address)),
    }
}

/// What is left of such a read.
#[inline(always)] // As above.
pub(super) fn wide_read(frame: &mut Frame, code: u32) -> u32 {
    let vcpu = resident(frame);
    if code == Code::ABSENT {
        inject::external_abort(Abort { fetch: false, write: false, walk: None }, regs::FAR_EL2.read());
        return done(vcpu);
    }
    let Left { esr, value: address } = frame.left;
    let offset = address.wrapping_sub(vcpu.vm.gicd.base);
    let (register, size) = ((esr >> 16 & 31) as usize, 1 << (esr >> 22 & 3));
    let (vgic, offset) = (&vcpu.vm.vgic, offset as u32);
    let value = vgic.dist_read_shared(offset, size).or_else(|| vgic.read_control_light(offset, size));
    let Some(value) = value.filter(|_| Frame::is_wide(register)) else { return Code::SYNC };
    frame.set(register, value);
    skip();
    done(vcpu)
}

/// Offset of `GICD_SGIR` in a GICv2's distributor.
const GICD_SGIR: u64 = 0xf00;

/// Filters of `GICD_SGIR`: the targets are in the value; the sender alone.
const SGIR_LISTED: u32 = 0;
const SGIR_SENDER: u32 = 2;

/// A store to `GICD_SGIR`, if the guest has a GICv2. The vector has fetched the value. Usually it is for one vCPU: the sender,
/// or another one that is in its guest. All else is left.
#[inline(always)] // The light handlers.
pub(super) fn light_write<G: Gic>(frame: &mut Frame, esr: u64, value: u32) -> u32 {
    let vcpu = resident(frame);
    // A store of a word whose syndrome is valid, not by a table walk, missing in stage 2.
    let store = ISV | SAS_WORD | WNR | FAULT_TRANSLATION;
    if esr as u32 & (ISV | SAS | S1PTW | WNR | FAULT) != store
        || fault_address() != vcpu.vm.gicd.base.wrapping_add(GICD_SGIR)
    {
        return frame.aborts;
    }
    let own = 1 << (vcpu.index & 7);
    let named = match value >> 24 & 3 {
        SGIR_LISTED => (value >> 16) as u8,
        SGIR_SENDER => own,
        _ => return leave(frame, Code::WIDE, esr, value.into()),
    };
    let intid = value & 15;
    if named == own {
        // SAFETY: an exit handler of the CPU where the vCPU is resident; taken once in this exit.
        let gic = unsafe { &mut vcpu.owned().gic };
        if !gic.present_sgi_from(&mut G::interface(), intid, vcpu.index) {
            return leave(frame, Code::WIDE, esr, value.into());
        }
        skip();
        return done(vcpu);
    }
    if !named.is_power_of_two() {
        return leave(frame, Code::WIDE, esr, value.into());
    }
    skip();
    let target = named.trailing_zeros() as usize;
    vcpu.vm.vgic.note_sender(target, intid, vcpu.index);
    match vcpu.vm.member(target) {
        Some(other) => post_light::<G>(frame, vcpu, other, intid),
        None => done(vcpu),
    }
}

/// What is left of such a store.
#[inline(always)] // The wide handlers.
pub(super) fn wide_write<G: Gic>(frame: &mut Frame, code: u32) -> u32 {
    if code == Code::WAKE {
        return wake::<G>(frame);
    }
    let vcpu = resident(frame);
    // SAFETY: an exit handler of the CPU where the vCPU is resident; taken once in this exit.
    let owned = unsafe { vcpu.owned() };
    let (intid, targets) = vcpu.vm.vgic.sgir_targets(frame.left.value as u32, vcpu.index);
    let mut outcome = Outcome::Done;
    for target in targets {
        if target == vcpu.index {
            outcome = owned.gic.inject_sgi_from(&mut G::interface(), intid, vcpu.index);
        } else {
            vcpu.vm.vgic.post_sgi(&Peers::<G>::new(vcpu.vm), target, intid, vcpu.index);
        }
    }
    skip();
    match outcome {
        Outcome::Done => done(vcpu),
        Outcome::Slow => Code::SETTLE,
    }
}

/// Any data abort. Devices and flash answer, memory that is mapped on demand is mapped; everything else ends as an external
/// abort in the guest.
pub(super) fn data_abort<G: Gic>(
    frame: &mut Frame,
    vcpu: &'static Vcpu,
    owned: &mut Owned,
    monitor: &dyn Monitor,
    iss: u32,
) {
    let address = fault_address();
    let decoded = Decoded::new(iss);
    if iss & (S1PTW | ISV) == ISV && iss & FAULT == FAULT_TRANSLATION {
        let value = if decoded.write { frame.get(decoded.register) } else { 0 };
        if let Some(read) = device::<G>(vcpu, owned, monitor, address, decoded, value) {
            if !decoded.write {
                frame.set(decoded.register, decoded.extend(read));
            }
            return skip();
        }
    }
    if touch(vcpu, iss)
        || flash::data_abort(frame, vcpu, monitor, iss)
        || service::data_abort::<G>(frame, vcpu, owned, iss)
        || touch_pooled(vcpu, iss)
    {
        return;
    }
    let walk = (iss & S1PTW != 0).then_some(WALK_LEVEL);
    let write = walk.is_none() && iss & WNR != 0;
    inject::external_abort(Abort { fetch: false, write, walk }, regs::FAR_EL2.read());
}

/// Clears and maps the memory whose first touch this is; false if it is none. Walks of the guest's own tables touch memory, too.
fn touch(vcpu: &Vcpu, iss: u32) -> bool {
    if iss & FAULT != FAULT_TRANSLATION {
        return false;
    }
    count(vcpu, vcpu.vm.demand.touch(fault_address()))
}

/// The same of memory whose blocks come from a pool. Where that has none, the guest touches it again until there is one: so it takes its
/// interrupts meanwhile, and stops, pauses and yields its CPU as ever.
#[cold]
fn touch_pooled(vcpu: &Vcpu, iss: u32) -> bool {
    if iss & FAULT != FAULT_TRANSLATION {
        return false;
    }
    let touched = vcpu.vm.demand.touch_pooled(fault_address());
    if touched == Touch::Dry {
        if vcpu.vm.taken.has_news() {
            // It is said before the guest goes on.
            vcpu.attention.raise(Reasons::SERVICE);
        }
        relax();
    }
    count(vcpu, touched)
}

/// Counts a touch in the statistics; false if it was none.
#[inline(always)] // Of each touch.
fn count(vcpu: &Vcpu, touched: Touch) -> bool {
    if touched == Touch::Mapped
        && let Some(page) = vcpu.statistics
    {
        page.count(Event::FirstTouch);
    }
    touched != Touch::Foreign
}

/// An instruction fetch from memory that is not mapped yet, or from outside the guest's memory.
pub(super) fn instruction_abort(vcpu: &Vcpu, iss: u32) {
    if touch(vcpu, iss) || flash::is_shown_again(vcpu, iss) || touch_pooled(vcpu, iss) {
        return;
    }
    let walk = (iss & S1PTW != 0).then_some(WALK_LEVEL);
    inject::external_abort(Abort { fetch: true, write: false, walk }, regs::FAR_EL2.read());
}

/// Accesses the device at `address`; `None` if there is none.
#[inline(always)] // One caller. Most accesses are to devices of the monitor's.
fn device<G: Gic>(
    vcpu: &Vcpu,
    owned: &mut Owned,
    monitor: &dyn Monitor,
    address: u64,
    access: Decoded,
    value: u64,
) -> Option<u64> {
    let vm = vcpu.vm;
    let value = access.extend_for_device(value);
    let banked = if G::SYSTEM_REGISTERS { vm.gicr.contains(address) } else { vm.gicv_dir.contains(address) };
    if banked || vm.gicd.contains(address) {
        return Some(controller::<G>(vcpu, owned, address, access, value));
    }
    if access.write {
        monitor.mmio_write(vm, address, access.size, value).then_some(0)
    } else {
        monitor.mmio_read(vm, address, access.size)
    }
}

/// Accesses the interrupt controller, which is at `address`.
#[inline(never)] // Apart from accesses to other devices.
fn controller<G: Gic>(vcpu: &Vcpu, owned: &mut Owned, address: u64, access: Decoded, value: u64) -> u64 {
    let vm = vcpu.vm;
    if vm.gicd.contains(address) {
        let offset = cpu::within(address - vm.gicd.base, vm.gicd.size) as u32;
        return vm.with_gic::<G, _>(|cx| {
            if access.write {
                owned.gic.dist_write(cx, offset, access.size, value);
                return 0;
            }
            owned.gic.dist_read(cx, offset, access.size)
        });
    }
    if G::SYSTEM_REGISTERS
        && let Some((target, offset)) = vm.gicr.locate(address)
    {
        let target = cpu::within(target as u64, vm.vcpus().len() as u64) as usize;
        return vm.with_gic::<G, _>(|cx| {
            if access.write {
                owned.gic.redist_write(cx, target, offset, access.size, value);
                return 0;
            }
            owned.gic.redist_read(cx, target, offset, access.size)
        });
    }
    if !G::SYSTEM_REGISTERS && access.write && address == vm.gicv_dir.base && access.size == 4 {
        vm.with_gic::<G, _>(|cx| owned.gic.dir(cx, value as u32 & 0x3ff));
    }
    0
}
