// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stage 2 faults: accesses to emulated devices, whose syndrome describes the instruction (Arm ARM D24.2.41, "ISS encoding for an
//! exception from a Data Abort"), first touches of memory that is mapped on demand, and flash.

use turnstile_arch_common::demand::Touch;
use turnstile_exitstat::Event;
use turnstile_vgic::Outcome;
use turnstile_vm::attention::{Posted, Reasons};

use super::decode::{Decoded, FAULT, FAULT_TRANSLATION, ISV, S1PTW, SAS, SAS_WORD, SSE, WNR, fault_address};
use super::flash;
use super::inject::{self, Abort};
use super::light::{Code, done, resident, skip, wake};
use crate::cpu::{self, regs};
use crate::irq::{Gic, Gicv2, Gicv3Legacy};
use crate::vcpu::frame::Frame;
use crate::vm::{Monitor, Owned, Peers, Vcpu};

/// The level a stage 1 walk had reached is not known from a stage 2 fault: the last one is reported.
const WALK_LEVEL: u64 = 3;

/// Reads of distributor registers that need nothing but the VM's shared state.
#[cfg_attr(target_os = "none", unsafe(no_mangle), unsafe(link_section = ".text.hot"))]
pub(super) extern "C" fn turnstile_light_data_abort(frame: &mut Frame, esr: u64) -> u32 {
    let iss = esr as u32;
    // A zero-extending read whose syndrome is valid, not by a table walk, missing in stage 2.
    if iss & (ISV | SSE | S1PTW | WNR | FAULT) != ISV | FAULT_TRANSLATION {
        return Code::SYNC;
    }
    let vcpu = resident(frame);
    let register = (iss >> 16 & 31) as usize;
    let offset = fault_address().wrapping_sub(vcpu.vm.gicd.base);
    if offset >= vcpu.vm.gicd.size || !Frame::is_light(register) {
        return Code::SYNC;
    }
    distributor_read(frame, offset as u32, iss)
}

/// Offset of `GICD_SGIR` in a GICv2's distributor.
const GICD_SGIR: u64 = 0xf00;

/// [`turnstile_light_data_abort`] of the vectors of a GICv2, where SGIs are stores to `GICD_SGIR`: looked for first.
#[cfg_attr(target_os = "none", unsafe(no_mangle), unsafe(link_section = ".text.hot"))]
pub(super) extern "C" fn turnstile_light_data_abort_gicv2(frame: &mut Frame, esr: u64) -> u32 {
    light_data_abort_with_sgir::<Gicv2>(frame, esr)
}

/// The same for a GICv2 on a GICv3.
#[cfg_attr(target_os = "none", unsafe(no_mangle), unsafe(link_section = ".text.hot"))]
pub(super) extern "C" fn turnstile_light_data_abort_legacy(frame: &mut Frame, esr: u64) -> u32 {
    light_data_abort_with_sgir::<Gicv3Legacy>(frame, esr)
}

#[inline(always)] // Its two callers are what it is for.
fn light_data_abort_with_sgir<G: Gic>(frame: &mut Frame, esr: u64) -> u32 {
    let iss = esr as u32;
    let vcpu = resident(frame);
    let register = (iss >> 16 & 31) as usize;
    let offset = fault_address().wrapping_sub(vcpu.vm.gicd.base);
    // A store of a word whose syndrome is valid, not by a table walk, missing in stage 2.
    if offset == GICD_SGIR
        && iss & (ISV | SAS | S1PTW | WNR | FAULT) == ISV | SAS_WORD | WNR | FAULT_TRANSLATION
    {
        if !Frame::is_light(register) {
            return Code::PRESERVED;
        }
        return light_sgir::<G>(frame, frame.light(register) as u32);
    }
    if iss & (ISV | SSE | S1PTW | WNR | FAULT) != ISV | FAULT_TRANSLATION
        || offset >= vcpu.vm.gicd.size
        || !Frame::is_light(register)
    {
        return Code::SYNC;
    }
    distributor_read(frame, offset as u32, iss)
}

/// A store to `GICD_SGIR` of one of the registers that have been stored now.
#[cfg(any(target_os = "none", test))]
#[inline(always)] // One caller for each GIC.
pub(super) fn light_preserved_sgir<G: Gic>(frame: &mut Frame, iss: u32) -> u32 {
    let value = frame.preserved((iss >> 16 & 31) as usize);
    light_sgir::<G>(frame, value as u32)
}

/// Sends the SGI of a store to `GICD_SGIR`. Usually it is for one vCPU, another one, which is in its guest: that is a
/// leaf without a stack frame of its own. All else is behind a tail call.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
#[inline(never)] // Behind a tail call, too: the handlers of data aborts are laid out without it.
fn light_sgir<G: Gic>(frame: &mut Frame, value: u32) -> u32 {
    let vcpu = resident(frame);
    let (intid, mut targets) = vcpu.vm.vgic.sgir_targets(value, vcpu.index);
    let (Some(first), None) = (targets.next(), targets.next()) else {
        return light_sgirs::<G>(frame, value);
    };
    if first == vcpu.index {
        return light_sgirs::<G>(frame, value);
    }
    skip();
    if let Some(target) = vcpu.vm.vcpu(first) {
        vcpu.vm.vgic.note_sender(first, intid, vcpu.index);
        match target.attention.post(Reasons::sgi(intid)) {
            Posted::Seen => {}
            Posted::Kick(token) => G::kick(token),
            Posted::Wake => return wake::<G>(vcpu, target),
        }
    }
    done(vcpu)
}

/// A store to `GICD_SGIR` for several vCPUs, or the sender: to itself by a list register, to others by their attention
/// words.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
#[inline(never)] // Needs a stack frame, which the other light exits are not to pay for.
fn light_sgirs<G: Gic>(frame: &mut Frame, value: u32) -> u32 {
    let vcpu = resident(frame);
    // SAFETY: an exit handler of the CPU where the vCPU is resident; taken once in this exit.
    let owned = unsafe { vcpu.owned() };
    let (intid, targets) = vcpu.vm.vgic.sgir_targets(value, vcpu.index);
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

/// A read of the distributor into one of the registers that the light tier holds.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
#[inline(never)] // Needs a stack frame, which the other light exits are not to pay for.
fn distributor_read(frame: &mut Frame, offset: u32, iss: u32) -> u32 {
    let vcpu = resident(frame);
    let Some(value) = vcpu.vm.vgic.dist_read_light(offset, 1 << (iss >> 22 & 3)) else {
        return control_read(frame, offset, iss);
    };
    frame.set_light((iss >> 16 & 31) as usize, value);
    skip();
    done(vcpu)
}

/// The same of `GICD_CTLR`, which Linux reads each time that it masks an interrupt.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
#[inline(never)] // Behind a tail call: the others are not to pay for it.
fn control_read(frame: &mut Frame, offset: u32, iss: u32) -> u32 {
    let vcpu = resident(frame);
    let Some(value) = vcpu.vm.vgic.read_control_light(offset, 1 << (iss >> 22 & 3)) else {
        return Code::SYNC;
    };
    frame.set_light((iss >> 16 & 31) as usize, value);
    skip();
    done(vcpu)
}

/// Any data abort. Devices and flash answer, memory that is mapped on demand is mapped; everything else ends as an external
/// abort in the guest.
pub(super) fn data_abort<G: Gic>(
    frame: &mut Frame,
    vcpu: &Vcpu,
    owned: &mut Owned,
    monitor: &dyn Monitor,
    iss: u32,
) {
    let address = fault_address();
    let far = regs::FAR_EL2.read();
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
    if touch(vcpu, iss) || flash::data_abort(frame, vcpu, monitor, iss) {
        return;
    }
    let walk = (iss & S1PTW != 0).then_some(WALK_LEVEL);
    let write = walk.is_none() && iss & WNR != 0;
    inject::external_abort(Abort { fetch: false, write, walk }, far);
}

/// Clears and maps the memory whose first touch this is; false if it is none. Walks of the guest's own tables touch memory, too.
fn touch(vcpu: &Vcpu, iss: u32) -> bool {
    if iss & FAULT != FAULT_TRANSLATION {
        return false;
    }
    let touched = vcpu.vm.demand.touch(fault_address());
    if touched == Touch::Mapped
        && let Some(page) = vcpu.statistics
    {
        page.count(Event::FirstTouch);
    }
    touched != Touch::Foreign
}

/// An instruction fetch from memory that is not mapped yet, or from outside the guest's memory.
pub(super) fn instruction_abort(vcpu: &Vcpu, iss: u32) {
    if touch(vcpu, iss) || flash::is_shown_again(vcpu, iss) {
        return;
    }
    let walk = (iss & S1PTW != 0).then_some(WALK_LEVEL);
    inject::external_abort(Abort { fetch: true, write: false, walk }, regs::FAR_EL2.read());
}

/// Accesses the device at `address`; `None` if there is none.
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
    if vm.gicd.contains(address) {
        let offset = cpu::within(address - vm.gicd.base, vm.gicd.size) as u32;
        return Some(vm.with_gic::<G, _>(|cx| {
            if access.write {
                owned.gic.dist_write(cx, offset, access.size, value);
                return 0;
            }
            owned.gic.dist_read(cx, offset, access.size)
        }));
    }
    if G::SYSTEM_REGISTERS
        && let Some((target, offset)) = vm.gicr.locate(address)
    {
        let target = cpu::within(target as u64, vm.vcpus().len() as u64) as usize;
        return Some(vm.with_gic::<G, _>(|cx| {
            if access.write {
                owned.gic.redist_write(cx, target, offset, access.size, value);
                return 0;
            }
            owned.gic.redist_read(cx, target, offset, access.size)
        }));
    }
    if !G::SYSTEM_REGISTERS && vm.gicv_dir.contains(address) {
        if access.write && address == vm.gicv_dir.base && access.size == 4 {
            vm.with_gic::<G, _>(|cx| owned.gic.dir(cx, value as u32 & 0x3ff));
        }
        return Some(0);
    }
    if access.write {
        monitor.mmio_write(vm, address, access.size, value).then_some(0)
    } else {
        monitor.mmio_read(vm, address, access.size)
    }
}
