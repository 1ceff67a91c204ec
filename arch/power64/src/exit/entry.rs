// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the vectors call: they find it in the frame.

use core::ptr;

use super::hcall::{ENTRIES, TABLE, TIMED_ENTRIES, with_terminal};
use super::{Code, doorbell, full, illegal, service, storage};
use crate::cpu::vector;
use crate::service::Services;
use crate::time;
use crate::vcpu::frame::{Bells, Entries, Entry, Frame, Full, Light, User};
use crate::vcpu::statistics;

/// What calls of a guest's processes lead to.
#[cfg(target_os = "none")]
const USER: User = {
    unsafe extern "C" {
        fn turnstile_user_called();
    }
    turnstile_user_called
};
/// On the host nothing jumps there.
#[cfg(not(target_os = "none"))]
const USER: User = {
    unsafe extern "C" fn nothing() {}
    nothing
};

/// Returns where the exits of a vCPU go on that may be `shared`, that is share its CPU, and `timed`, that is keep statistics.
pub(super) fn entries(shared: bool, timed: bool) -> Entries {
    let light: Light = match (shared, timed) {
        (false, false) => light,
        (true, false) => shared_light,
        (false, true) => timed_light,
        (true, true) => timed_shared_light,
    };
    let (calls, full, full_call): (_, Full, Full) = match timed {
        true => (&TIMED_ENTRIES, timed_full, timed_full_call),
        false => (&ENTRIES, full, full_call),
    };
    let (data, facility): (Light, Light) =
        if timed { (light, light) } else { (storage::light_data, illegal::light_facility) };
    let (calls, inner) = (ptr::from_ref(calls).cast(), ptr::from_ref(&TABLE).cast());
    Entries { calls, inner, light, data, facility, full, full_call, user: USER, bells: Bells::NONE }
}

/// The same of a vCPU whose VM has services.
pub(super) fn with_services(services: &'static Services, timed: bool, entries: Entries) -> Entries {
    let full: Full = match (services.memory.is_empty() && services.bars.is_empty(), timed) {
        (true, _) => entries.full,
        (false, true) => service::timed_full,
        (false, false) => service::full,
    };
    let calls = match (&services.terminal, timed) {
        (None, _) => entries.calls,
        (Some(_), timed) => with_terminal(entries.calls, timed).cast(),
    };
    let bells = doorbell::usual(services);
    let data: Light = match (doorbell::any(services), bells.size != 0, timed) {
        (false, ..) => entries.data,
        (true, true, false) => doorbell::light_data,
        (true, true, true) => doorbell::timed_light_data,
        (true, false, false) => doorbell::light_beside,
        (true, false, true) => doorbell::timed_light_beside,
    };
    Entries { full, calls, data, bells, ..entries }
}

/// Interrupts that are soon done; what is none of them is for the full tier.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
pub(super) extern "C" fn light(frame: &mut Frame, vector: u32) -> u32 {
    match vector {
        // Whoever kicks has set a reason to look first: it is in the attention word.
        vector::HYPERVISOR_DOORBELL => super::done(frame),
        vector::HYPERVISOR_FACILITY => illegal::light_facility(frame, vector),
        vector::HYPERVISOR_DATA_STORAGE => storage::light_data(frame, vector),
        vector::HYPERVISOR_INSTRUCTION_STORAGE => storage::light_instruction(frame),
        _ => Code::FULL,
    }
}

/// The full tier of interrupts.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
pub(super) extern "C" fn full(frame: &mut Frame, why: u32) -> Entry {
    full::exit(frame, why)
}

/// The full tier of calls.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
pub(super) extern "C" fn full_call(frame: &mut Frame, why: u32) -> Entry {
    full::call(frame, why)
}

/// [`light`], with the time that it takes.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
extern "C" fn timed_light(frame: &mut Frame, vector: u32) -> u32 {
    frame.timing.begin(statistics::reason(vector), time::ticks);
    let why = light(frame, vector);
    if why == 0 {
        statistics::account(frame);
    }
    why
}

/// [`light`], where a doorbell may be for the run queue.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
pub(super) extern "C" fn shared_light(frame: &mut Frame, vector: u32) -> u32 {
    super::listen(frame, vector);
    light(frame, vector)
}

/// [`timed_light`], where a doorbell may be for the run queue.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
extern "C" fn timed_shared_light(frame: &mut Frame, vector: u32) -> u32 {
    super::listen(frame, vector);
    timed_light(frame, vector)
}

/// [`full`], with the time that the exit has taken since its beginning.
extern "C" fn timed_full(frame: &mut Frame, why: u32) -> Entry {
    let entry = full::exit(frame, why);
    statistics::account(frame);
    entry
}

/// The same of [`full_call`].
extern "C" fn timed_full_call(frame: &mut Frame, why: u32) -> Entry {
    let entry = full::call(frame, why);
    statistics::account(frame);
    entry
}
