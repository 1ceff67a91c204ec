// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What exits cost, for the vCPUs of VMs that keep statistics.
//!
//! They have entries of their own: the frame leads to them (`exit/entry.rs`, `vectors.S`), so other vCPUs pay nothing for
//! them, not even a comparison. An exit's time begins when its handler is reached, some twenty instructions behind its vector,
//! and ends when its registers are about to be loaded again.
//!
//! An entry closes exactly one reckoning. An exit that does not lead back into its guest (the vCPU stops, its VM does) is
//! reckoned when that is known ([`Timing::end`]); the vCPU's next entry is then its start ([`Timing::begin`]). While a vCPU waits, no cost accrues.

#[cfg(doc)]
use turnstile_exitstat::Timing;
use turnstile_exitstat::{Event, Reason, record_offset};

use super::frame::Frame;
use crate::cpu::vector;

/// `vectors.S` has the offset of this record: calls do not look for it.
const _: () = assert!(record_offset(Reason::Hypercall) == 128);

/// The reason for which a vector is taken.
#[inline(always)] // Part of each light exit that is timed.
pub(crate) fn reason(vector: u32) -> Reason {
    match vector {
        vector::HYPERVISOR_DATA_STORAGE => Reason::DataAbort,
        vector::HYPERVISOR_INSTRUCTION_STORAGE => Reason::InstructionAbort,
        vector::HYPERVISOR_DOORBELL => Reason::Kick,
        vector::HYPERVISOR_DECREMENTER | vector::VIRTUALIZATION => Reason::OtherInterrupt,
        vector::EMULATION_ASSISTANCE => Reason::Exception,
        vector::HYPERVISOR_FACILITY => Reason::SystemRegister,
        vector::SYSTEM_RESET => Reason::NonMaskable,
        vector::MACHINE_CHECK | vector::MAINTENANCE => Reason::MachineError,
        _ => Reason::Other,
    }
}

/// Adds the time of the exit to the record of its reason.
#[inline(always)] // A call.
pub(crate) fn account(frame: &mut Frame) {
    #[cfg(target_os = "none")]
    {
        #[allow(improper_ctypes, reason = "it only looks at fields whose places are known")]
        unsafe extern "C" {
            fn turnstile_account(frame: &mut Frame);
        }
        // SAFETY: the frame is that of a vCPU with statistics, of which this CPU writes the page.
        unsafe { turnstile_account(frame) };
    }
    #[cfg(not(target_os = "none"))]
    let _ = frame;
}

/// Counts an exception that the guest is given.
pub(crate) fn count_exception(frame: &Frame) {
    frame.timing.count(Event::InjectedException);
}
