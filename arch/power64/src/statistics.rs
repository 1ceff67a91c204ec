// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What exits cost, for the vCPUs of VMs that keep statistics.

use turnstile_exitstat::{Page, Reason, record_offset};

use crate::frame::{Frame, Timing};
use crate::time;
use crate::vcpu::Vcpu;

/// Begins what is no exit: the next entry ends it.
pub fn begin(frame: &mut Frame, reason: Reason) {
    if !frame.page.is_null() {
        frame.timing = Timing { begin: time::ticks(), record: record_offset(reason) as u64 };
    }
}

/// Ends an exit that does not lead back into its guest.
pub fn end(vcpu: &Vcpu, timing: Timing) {
    let Some(page) = vcpu.statistics else { return };
    let reason = Reason::ALL.iter().find(|reason| record_offset(**reason) as u64 == timing.record);
    if let Some(reason) = reason {
        page.record(*reason).add(time::ticks().wrapping_sub(timing.begin));
    }
}

/// Does what is nobody's cost, such as waiting, during the exit that is being handled.
pub fn uncounted(frame: &mut Frame, f: impl FnOnce()) {
    if frame.page.is_null() {
        return f();
    }
    let before = time::ticks();
    f();
    frame.timing.begin = frame.timing.begin.wrapping_add(time::ticks().wrapping_sub(before));
}

/// Returns where a vCPU's statistics are, or null: for its frame.
pub fn page(vcpu: &Vcpu) -> *const Page {
    vcpu.statistics.map_or(core::ptr::null(), core::ptr::from_ref)
}
