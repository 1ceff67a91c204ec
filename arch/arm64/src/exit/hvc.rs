// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hypercalls that only answer (SMCCC, DEN0028; PSCI, DEN0022).

use turnstile_vm::psci;

use super::light::{Code, done, resident};
use crate::vcpu::frame::Frame;

/// Answers, or leaves the call to the full tier. ELR_EL2 is past the HVC already.
#[cfg_attr(target_os = "none", unsafe(no_mangle), unsafe(link_section = ".text.hot"))]
pub(super) extern "C" fn turnstile_light_hvc(frame: &mut Frame, _esr: u64) -> u32 {
    match psci::constant(frame.light(0) as u32) {
        Some(value) => {
            frame.set_light(0, value);
            done(resident(frame))
        }
        None => inquiry(frame),
    }
}

/// A question whose answer has to be looked for.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
#[inline(never)] // Needs a stack frame, which the other light exits are not to pay for.
fn inquiry(frame: &mut Frame) -> u32 {
    let vcpu = resident(frame);
    match vcpu.vm.psci.answer(frame.light(0) as u32, frame.light(1), frame.light(2)) {
        Some(value) => {
            frame.set_light(0, value);
            done(vcpu)
        }
        None => Code::SYNC,
    }
}
