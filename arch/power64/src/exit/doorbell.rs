// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Doorbells of services: stores that need no answer, so the light tier does them. A store of a form that is seldom, or of a register
//! that the light tier does not have, rings in the full tier (`exit/service.rs`).
#![cfg_attr(not(any(target_os = "none", test)), allow(dead_code, reason = "the host has no vectors"))]

use turnstile_exitstat::Reason;
use turnstile_service::image::{BY_PLACE, BY_VALUE, Doorbells};

use super::inside::Inside;
use super::instruction;
use super::storage::{self, PAGE, REAL, status};
use super::walk::{self, Context};
use super::{done, resident};
use crate::cpu::regs::{ASDR, HDAR, HDSISR, HSRR0, HSRR1, msr};
use crate::service::{Served, Services};
use crate::time;
use crate::vcpu::frame::{Bells, Frame, Light};
use crate::vcpu::statistics;
use crate::vm::Vcpu;

/// The first register that the light tier does not store.
const UNSTORED: usize = 13;

/// Opcodes of `stw` and `sth`, which differ in one bit.
const STORE_WORD: u32 = 36;
const STORE_HALF: u32 = 44;
/// The bits of an instruction that both may have.
const HALF_OR_OPERANDS: u32 = (STORE_WORD ^ STORE_HALF) << 26 | ((1 << 26) - 1);
/// Bits of an address inside a word.
const INSIDE_WORD: u64 = 3;

/// Says whether one of these services has doorbells. All of them are in their devices.
pub(super) fn any(services: &Services) -> bool {
    let all = || services.memory.iter().chain(services.bars.iter().map(|bar| &bar.served));
    let mut areas = all().map(|served| (served.doorbells, served.size));
    all().any(|served| served.doorbells.size != 0)
        && areas.all(|(area, size)| u64::from(area.first) + u64::from(area.size) <= size)
}

/// Returns those that are looked at first: of the first device with doorbells that are rung by the value that is stored.
pub(super) fn usual(services: &'static Services) -> Bells {
    let is_usual = |served: &&Served| served.doorbells.size != 0 && served.doorbells.by == BY_VALUE;
    services.memory.iter().find(is_usual).map_or(Bells::NONE, |served| {
        let Doorbells { first, size, .. } = served.doorbells;
        Bells { start: served.base + u64::from(first), size: size.into(), served }
    })
}

/// The light handler of data storage interrupts of VMs with usual doorbells. A leaf, and straight: all but the way of one that is
/// busy, rung by a usual store of a guest that has relocation off, is left to others.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
pub(super) extern "C" fn light_data(frame: &mut Frame, vector: u32) -> u32 {
    if !is_store() {
        return storage::light_data(frame, vector);
    }
    let address = accessed();
    let Bells { start, size, served } = frame.bells;
    if address.wrapping_sub(start) >= size {
        return light_beside(frame, vector);
    }
    // SAFETY: there are doorbells, so this is their device, which is there for ever.
    let served = unsafe { &*served };
    let pc = HSRR0.read();
    let Some(word) = store_word(frame, pc, address) else { return light_other(frame, vector) };
    let register = register(word);
    if register >= UNSTORED {
        return light_other(frame, vector);
    }
    // Only the lowest bits of the number matter (`Pending::doorbell`), which both stores have.
    rings(frame, served, frame.gpr(register).wrapping_add(served.bell), pc)
}

/// The same of VMs with other doorbells: those of further devices, of those that move, and those that are rung by their place.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
#[inline(never)] // The usual ones do not pay for its loops.
pub(super) extern "C" fn light_beside(frame: &mut Frame, vector: u32) -> u32 {
    if !is_store() {
        return storage::light_data(frame, vector);
    }
    let address = accessed();
    let Some((served, place)) = resident(frame).vm.services().and_then(|services| area(services, address))
    else {
        return storage::light_data(frame, vector);
    };
    let pc = HSRR0.read();
    let Some(word) = store_word(frame, pc, address) else { return light_other(frame, vector) };
    let queue = match served.doorbells.by == BY_PLACE {
        true => place / 4,
        false if register(word) < UNSTORED => frame.gpr(register(word)),
        false => return light_other(frame, vector),
    };
    rings(frame, served, queue.wrapping_add(served.bell), pc)
}

/// Returns the instruction at `pc`, if it is a usual store, at the beginning of a word, of a guest that has relocation off.
#[inline(always)] // Part of the way.
fn store_word(frame: &Frame, pc: u64, address: u64) -> Option<u32> {
    let host = resident(frame).vm.life().ram.settled_word(pc & walk::REAL & !INSIDE_WORD)?;
    // SAFETY: RAM of the VM, whose vCPU is in an exit; aligned. Volatile: others may write. With relocation on it is some other word,
    // which nobody looks at.
    let word = u32::from_le(unsafe { core::ptr::read_volatile(host as *const u32) });
    // In one value: one branch.
    let odd = u64::from((word ^ STORE_WORD << 26) & !HALF_OR_OPERANDS)
        | address & INSIDE_WORD
        | (HSRR1.read() ^ msr::LE) & (msr::IR | msr::LE);
    (odd == 0).then_some(word)
}

/// Returns the number of the register that is stored.
#[inline(always)] // A rotation.
const fn register(word: u32) -> usize {
    (word >> 21 & 31) as usize
}

/// Says whether the guest has stored where the partition's tables have nothing.
#[inline(always)] // Part of the way.
fn is_store() -> bool {
    const STORE: u64 = status::NO_ENTRY | status::STORE;
    HDSISR.read() & (STORE | status::TABLES) == STORE
}

/// Returns the guest's real address of the access.
#[inline(always)] // Part of the way.
fn accessed() -> u64 {
    ASDR.read() & REAL | HDAR.read() & PAGE
}

/// Rings a doorbell from the light tier. The guest goes on behind the store at `pc`.
#[inline(always)] // The way of what is busy.
fn rings(frame: &mut Frame, served: &Served, queue: u64, pc: u64) -> u32 {
    if served.service.rings(queue) {
        return enter(frame, served);
    }
    // SAFETY: the guest goes on behind the store.
    unsafe { HSRR0.write(pc.wrapping_add(4)) };
    done(frame)
}

/// Returns the device with doorbells at an address, and where in these.
#[inline(always)] // One caller.
fn area(services: &'static Services, address: u64) -> Option<(&'static Served, u64)> {
    let place = |served: &'static Served, base: u64| {
        let place = address.wrapping_sub(base).wrapping_sub(served.doorbells.first.into());
        (place < served.doorbells.size.into()).then_some((served, place))
    };
    let fixed = services.memory.iter().find_map(|served| place(served, served.base));
    fixed.or_else(|| {
        services.bars.iter().find_map(|bar| {
            // A BAR may be smaller than its doorbells' area says.
            let inside = |place: u64| place + u64::from(bar.served.doorbells.first) < bar.size();
            place(&bar.served, bar.base()).filter(|(_, place)| inside(*place))
        })
    })
}

/// Enters a service, in which nobody was, for what waits.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
#[inline(never)] // What is busy does not pay for its registers.
extern "C" fn enter(frame: &mut Frame, served: &Served) -> u32 {
    let (next, state) = (HSRR0.read().wrapping_add(4), HSRR1.read());
    // SAFETY: an exit handler, on the CPU where the vCPU is resident, which is inside; nothing of a service calls one.
    unsafe { served.service.rung(&mut Inside(resident(frame))) };
    // SAFETY: the guest goes on behind the store, as it was; a service leaves others in these registers.
    unsafe {
        HSRR0.write(next);
        HSRR1.write(state);
    }
    done(frame)
}

/// The same of guests with relocation on, and of other stores.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
#[inline(never)] // As above.
extern "C" fn light_other(frame: &mut Frame, vector: u32) -> u32 {
    match rung(frame, resident(frame), HSRR1.read()) {
        Some((served, queue)) => rings(frame, served, queue, HSRR0.read()),
        None => storage::light_data(frame, vector),
    }
}

/// [`light_data`], with the time that it takes.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
pub(super) extern "C" fn timed_light_data(frame: &mut Frame, vector: u32) -> u32 {
    timed(frame, vector, light_data)
}

/// [`light_beside`], with the time that it takes.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
pub(super) extern "C" fn timed_light_beside(frame: &mut Frame, vector: u32) -> u32 {
    timed(frame, vector, light_beside)
}

/// A handler, with the time that it takes.
#[inline(always)] // Two callers, each of which calls its handler directly.
fn timed(frame: &mut Frame, vector: u32, light: Light) -> u32 {
    frame.timing.begin(statistics::reason(vector), time::ticks);
    // A service changes these registers.
    let (pc, address) = (HSRR0.read(), accessed());
    let why = light(frame, vector);
    // Only what has rung goes on behind its store.
    if HSRR0.read() != pc
        && let Some((served, _)) = resident(frame).vm.services().and_then(|services| area(services, address))
    {
        served.service.account(&mut frame.timing, Reason::Doorbell, time::ticks);
    }
    if why == 0 {
        statistics::account(frame);
    }
    why
}

/// Returns the device and the queue that the guest rings, if it is that, and by a store that the light tier can read.
#[inline(always)] // One caller.
fn rung(frame: &Frame, vcpu: &'static Vcpu, state: u64) -> Option<(&'static Served, u64)> {
    let offset = HDAR.read() & PAGE;
    let (served, place) = vcpu.vm.services()?.at_address(ASDR.read() & REAL | offset)?;
    served.queue(place, 0)?;
    let ram = &vcpu.vm.life().ram;
    let word = match state & msr::IR {
        0 => walk::fetch_real(ram, state, HSRR0.read())?,
        _ => walk::fetch(ram, &Context::at(state, vcpu), HSRR0.read())?,
    };
    let access = instruction::decode_displaced(word)?;
    let is_known = access.register < UNSTORED || served.doorbells.by == BY_PLACE;
    if !access.store || access.update.is_some() || !is_known {
        return None;
    }
    // In its page and in the device.
    let size = u64::from(access.size);
    if offset + size > PAGE + 1 || size > served.size.saturating_sub(place) {
        return None;
    }
    let value = access.to_device(frame.gpr(access.register), state & msr::LE != 0);
    Some((served, served.queue(place, value)?))
}

/// Rings a doorbell from the full tier.
pub(super) fn ring(vcpu: &'static Vcpu, served: &Served, queue: u64) {
    // SAFETY: an exit handler, on the CPU where the vCPU is resident; nothing of a service calls one.
    unsafe { served.service.ring(queue, &mut Inside(vcpu)) };
}
