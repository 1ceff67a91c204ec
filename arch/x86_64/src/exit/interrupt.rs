// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Physical interrupts while a guest runs.

use turnstile_exitstat::Reason;

use super::tier::{Code, done};
use crate::cpu::svm::Vmcb;
use crate::irq::interrupts;
use crate::vcpu::frame::Frame;
use crate::vcpu::next::Next;
use crate::vcpu::statistics;

/// An interrupt while the guest runs. A kick is over when it has been taken: what it is about is in the attention word.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
pub(super) extern "C" fn light<N: Next>(frame: &mut Frame, vmcb: &mut Vmcb, _: u32) -> u32 {
    let arrived = interrupts::take();
    if arrived.is_kick() {
        statistics::note::<N>(frame, Reason::Kick);
        return done::<N>(frame, vmcb);
    }
    Code::ARRIVED | arrived.bits()
}
