// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hypercalls that only answer (SMCCC, DEN0028; PSCI, DEN0022).

use turnstile_vm::psci;

use super::light::{Code, done, resident};
use crate::vcpu::frame::Frame;

/// Answers what always has the same answer. ELR_EL2 is past the HVC already.
#[inline(always)] // The light handler.
pub(super) fn light(frame: &mut Frame) -> u32 {
    match psci::constant(frame.get(0) as u32) {
        Some(value) => {
            frame.set(0, value);
            done(resident(frame))
        }
        None => Code::WIDE,
    }
}

/// A question whose answer has to be looked for; a call that is none is left to the full tier.
#[inline(always)] // The wide handler.
pub(super) fn wide(frame: &mut Frame) -> u32 {
    let vcpu = resident(frame);
    match vcpu.vm.psci.answer(frame.get(0) as u32, frame.get(1), frame.get(2)) {
        Some(value) => {
            frame.set(0, value);
            done(vcpu)
        }
        None => Code::SYNC,
    }
}
