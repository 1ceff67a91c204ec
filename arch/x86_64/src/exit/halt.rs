// SPDX-License-Identifier: Apache-2.0 OR MIT
//! HLT.

use super::tier::{Code, done};
use crate::cpu::svm::{Vmcb, event};
use crate::vcpu::frame::Frame;
use crate::vcpu::next::{Next, length, skip};

/// Light if something is there for the guest already.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
pub(super) extern "C" fn light<N: Next>(frame: &mut Frame, vmcb: &mut Vmcb, _: u32) -> u32 {
    skip::<N>(vmcb, length::HLT);
    if event::takes_interrupt(vmcb) { done::<N>(frame, vmcb) } else { Code::WAIT }
}
