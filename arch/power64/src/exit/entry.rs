// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the vectors call: they find it in the frame.

use super::{Code, full, illegal, storage, vector};
use crate::frame::Frame;
use crate::statistics;

/// The light handler of all interrupts but calls: takes the frame and the vector; returns zero to re-enter, the attention
/// word, or a [`Code`].
pub type Light = extern "C" fn(&mut Frame, u32) -> u32;
/// The full tier: takes the frame and why the light tier did not re-enter. Returns when the guest is to be entered.
pub type Full = extern "C" fn(&mut Frame, u32);

#[cfg(feature = "ablation")]
pub(crate) use super::hcall::NAIVE_TABLE;
pub(crate) use super::hcall::{TABLE, TIMED_TABLE};
/// See [`Light`].
pub(crate) const LIGHT: Light = light;
/// See [`Full`].
pub(crate) const FULL: Full = full;
/// [`LIGHT`] of vCPUs with statistics.
pub(crate) const TIMED_LIGHT: Light = timed_light;
/// [`LIGHT`] of vCPUs that share their CPU.
pub(crate) const SHARED_LIGHT: Light = shared_light;
/// The same with statistics.
pub(crate) const TIMED_SHARED_LIGHT: Light = timed_shared_light;
/// [`FULL`] of vCPUs with statistics.
pub(crate) const TIMED_FULL: Full = timed_full;

/// Interrupts that are soon done; what is none of them is for the full tier.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
extern "C" fn light(frame: &mut Frame, vector: u32) -> u32 {
    match vector {
        // Whoever kicks has set a reason to look first: it is in the attention word.
        vector::HYPERVISOR_DOORBELL => super::done(frame),
        vector::HYPERVISOR_FACILITY => illegal::light_facility(frame),
        vector::HYPERVISOR_DATA_STORAGE => storage::light_data(frame),
        vector::HYPERVISOR_INSTRUCTION_STORAGE => storage::light_instruction(frame),
        _ => Code::FULL,
    }
}

/// The full tier.
extern "C" fn full(frame: &mut Frame, why: u32) {
    full::exit(frame, why);
}

/// [`light`], with the time that it takes.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
extern "C" fn timed_light(frame: &mut Frame, vector: u32) -> u32 {
    statistics::begin(frame, statistics::reason(vector));
    let why = light(frame, vector);
    if why == 0 {
        statistics::account(frame);
    }
    why
}

/// [`light`], where a doorbell may be for the run queue.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
extern "C" fn shared_light(frame: &mut Frame, vector: u32) -> u32 {
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
extern "C" fn timed_full(frame: &mut Frame, why: u32) {
    full::exit(frame, why);
    statistics::account(frame);
}
