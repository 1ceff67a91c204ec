// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exits that a service handles: calls of terminals, and accesses to devices in memory. VMs with services have entries of their
//! own (`exit/entry.rs`); those of all others know nothing of this.
//!
//! A service is run by the vCPU that has something for it, on its CPU ([`turnstile_arch_common::service`]). The vCPU's registers
//! stay as they are, and physical interrupts are taken meanwhile; what others post to the vCPU waits in its attention word.
#![cfg_attr(not(any(target_os = "none", test)), allow(dead_code, reason = "the host has no vectors"))]

use turnstile_exitstat::Reason;
use turnstile_papr::code::Code as Return;
use turnstile_papr::terminal;
use turnstile_service::abi::{CHARACTERS, Event, Kind};

use super::doorbell;
use super::full;
use super::inside::{access, access_seldom};
use super::storage::{self, Device};
use super::{Answer, Code, resident};
use crate::cpu::regs::{HSRR0, HSRR1, SRR0, SRR1};
use crate::cpu::vector;
use crate::service::{Served, Services};
use crate::time;
use crate::vcpu::frame::{Entry, Frame};
use crate::vcpu::statistics;
use crate::vm::Vcpu;

/// H_GET_TERM_CHAR. The second and the third value are in the frame.
#[cfg_attr(
    target_os = "none",
    unsafe(link_section = ".text.hot"),
    unsafe(export_name = "turnstile_service_terminal_get")
)]
pub(super) extern "C" fn get(frame: &mut Frame, unit: u64) -> Answer {
    let vcpu = resident(frame);
    let (mut code, mut count, mut words) = (Return::HARDWARE, 0, [0; 2]);
    match (terminal::check(unit, 0), vcpu.vm.services().and_then(|services| services.terminal.as_ref())) {
        (Err(wrong), _) => code = wrong,
        (_, None) => {}
        (_, Some(served)) => {
            let answer = access(vcpu, served, &Event::new(Kind::TerminalRead, [served.device, 0, 0, 0, 0]));
            code = Return::SUCCESS;
            (count, words) = (answer.count.min(CHARACTERS), answer.words);
        }
    }
    // Here the first character is in the highest byte.
    frame.set_gpr(5, words[0].swap_bytes());
    frame.set_gpr(6, words[1].swap_bytes());
    Answer { code: code.value(), value: count }
}

/// H_PUT_TERM_CHAR.
#[cfg_attr(
    target_os = "none",
    unsafe(link_section = ".text.hot"),
    unsafe(export_name = "turnstile_service_terminal_put")
)]
pub(super) extern "C" fn put(frame: &mut Frame, unit: u64, count: u64, high: u64, low: u64) -> Answer {
    let vcpu = resident(frame);
    frame.set_gpr(5, 0);
    frame.set_gpr(6, 0);
    if let Err(code) = terminal::check(unit, count) {
        return Answer::code(code.value());
    }
    let Some(served) = vcpu.vm.services().and_then(|services| services.terminal.as_ref()) else {
        return Answer::code(Return::HARDWARE.value());
    };
    let arguments = [served.device, count, high.swap_bytes(), low.swap_bytes(), 0];
    access_seldom(vcpu, served, &Event::new(Kind::TerminalWrite, arguments));
    Answer::SUCCESS
}

/// [`get`], where statistics are kept.
#[cfg_attr(
    target_os = "none",
    unsafe(link_section = ".text.hot"),
    unsafe(export_name = "turnstile_service_timed_terminal_get")
)]
pub(super) extern "C" fn timed_get(frame: &mut Frame, unit: u64) -> Answer {
    let answer = get(frame, unit);
    account_terminal(frame, &answer);
    answer
}

/// [`put`], where statistics are kept.
#[cfg_attr(
    target_os = "none",
    unsafe(link_section = ".text.hot"),
    unsafe(export_name = "turnstile_service_timed_terminal_put")
)]
pub(super) extern "C" fn timed_put(frame: &mut Frame, unit: u64, count: u64, high: u64, low: u64) -> Answer {
    let answer = put(frame, unit, count, high, low);
    account_terminal(frame, &answer);
    answer
}

/// The exit that is being handled was for the service of the terminal, if it was answered.
#[inline(never)] // Two callers.
fn account_terminal(frame: &mut Frame, answer: &Answer) {
    if answer.code == Return::SUCCESS.value()
        && let Some(Services { terminal: Some(served), .. }) = resident(frame).vm.services()
    {
        served.service.account(&mut frame.timing, Reason::Service, time::ticks);
    }
}

/// Ends such a call when the attention word is not zero. The answer is in the frame.
#[cfg_attr(
    target_os = "none",
    unsafe(link_section = ".text.hot"),
    unsafe(export_name = "turnstile_service_attend")
)]
pub(super) extern "C" fn attend(frame: &mut Frame, _: u32) -> Entry {
    let (second, third) = (frame.gpr(5), frame.gpr(6));
    frame.clear_changeable();
    frame.set_gpr(5, second);
    frame.set_gpr(6, third);
    (frame.pc, frame.msr) = (SRR0.read(), SRR1.read());
    let entry = full::end(frame);
    if frame.timing.is_kept() {
        statistics::account(frame);
    }
    entry
}

/// The full tier of interrupts, of VMs with services.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
pub(super) extern "C" fn full(frame: &mut Frame, why: u32) -> Entry {
    (frame.pc, frame.msr) = (HSRR0.read(), HSRR1.read());
    if why & Code::KIND == Code::FULL
        && frame.vector == vector::HYPERVISOR_DATA_STORAGE
        && let Some(services) = resident(frame).vm.services()
        && let Some(device) = storage::device(frame, services)
    {
        return transfer(frame, device);
    }
    full::exit(frame, why)
}

/// [`full`], with the time that the exit has taken since its beginning.
pub(super) extern "C" fn timed_full(frame: &mut Frame, why: u32) -> Entry {
    let entry = full(frame, why);
    statistics::account(frame);
    entry
}

/// Hands an access to the service of a device, unless it rings one of its doorbells.
fn hand(vcpu: &'static Vcpu, served: &Served, event: &Event, reason: &mut Reason) -> u64 {
    let [kind, _, offset, _, value, _] = event.0;
    match served.queue(offset, value) {
        Some(queue) if kind == Kind::Write as u64 => {
            doorbell::ring(vcpu, served, queue);
            *reason = Reason::Doorbell;
            0
        }
        _ => access_seldom(vcpu, served, event),
    }
}

/// An access to a device that a service serves.
#[inline(always)] // One caller.
fn transfer(frame: &mut Frame, device: Device<'_>) -> Entry {
    let (vcpu, mut reason) = (resident(frame), Reason::Service);
    storage::carry_out(frame, &device, |event| hand(vcpu, device.served, &event, &mut reason));
    device.served.service.account(&mut frame.timing, reason, time::ticks);
    full::end(frame)
}
