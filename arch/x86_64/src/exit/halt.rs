// SPDX-License-Identifier: Apache-2.0 OR MIT
//! HLT.

use super::keep::keep;
use super::tier::{Code, control, executed, is_stepped};
use crate::cpu::svm::event;
use crate::vcpu::frame::Frame;
use crate::vcpu::next::{Next, length};

keep! {
    /// Light if something is there for the guest already.
    light => any: rdx 48
}

#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
extern "C" fn any<N: Next>(frame: &mut Frame, _: u64, _: u64) -> u32 {
    let vmcb = control(frame);
    if event::takes_interrupt(vmcb) {
        return executed::<N>(frame, vmcb, length::HLT);
    }
    if is_stepped(vmcb) {
        return Code::FULL;
    }
    vmcb.set_rip(N::address(vmcb, length::HLT));
    vmcb.set_interrupt_shadow(0);
    Code::WAIT
}
