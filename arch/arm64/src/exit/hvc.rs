// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hypercalls that only answer (SMCCC, DEN0028; PSCI, DEN0022).

use super::{Code, done, resident};
use crate::frame::Frame;

/// Answers, or leaves the call to the full tier. ELR_EL2 is past the HVC already.
#[inline(always)] // The shortest exit there is; one caller.
pub(super) fn light(frame: &mut Frame) -> u32 {
    let vcpu = resident(frame);
    match vcpu.vm.psci.answer(frame.light(0) as u32, frame.light(1), frame.light(2)) {
        Some(value) => {
            frame.set_light(0, value);
            done(vcpu)
        }
        None => Code::SYNC,
    }
}
