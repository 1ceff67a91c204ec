// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Physical interrupts while a guest runs.

use turnstile_exitstat::Reason;

use super::attend;
use super::keep::keep;
use super::tier::{Code, control, done};
use crate::irq::interrupts;
use crate::vcpu::frame::{Frame, resident};
use crate::vcpu::next::Next;
use crate::vcpu::statistics;

keep! {
    /// An interrupt while the guest runs. A kick is over when it has been taken: what it is about is in the attention word, and
    /// mostly that others have posted interrupts.
    light => any: rsi 40, rdx 48, r8 24, r9 16, r10 8, r11 0
}

#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
extern "C" fn any<N: Next>(frame: &mut Frame, _: u64, _: u64) -> u32 {
    let arrived = interrupts::take();
    if !arrived.is_kick() {
        return Code::ARRIVED | arrived.bits();
    }
    statistics::note::<N>(frame, Reason::Kick);
    let (vcpu, vmcb) = (resident(frame), control(frame));
    attend::take_posted::<N>(vcpu, vmcb);
    done::<N>(frame, vmcb)
}
