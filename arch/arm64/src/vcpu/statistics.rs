// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What exits cost, for the vCPUs of VMs that keep statistics.
//!
//! Their CPUs use a vector table of their own (`vectors_timed` in `vectors.S`). It reads the physical counter first
//! thing and notes the reason of the exit in the frame; before it enters the guest it reads the counter again and adds
//! the difference to the reason's record in the vCPU's page. Here is the rest: reasons that only a handler knows, and
//! time that is nobody's cost.
//!
//! An entry closes exactly one reckoning. An exit that does not lead back into its guest (the vCPU is turned off, its
//! VM stops) is reckoned when that is known ([`Timing::end`]); the vCPU's next entry is then its start ([`Timing::begin`]). While a
//! vCPU waits, in the waiting room or in PSCI CPU_SUSPEND, no cost accrues.

#[cfg(doc)]
use turnstile_exitstat::Timing;
use turnstile_exitstat::{Reason, record_offset};

use crate::cpu::class;

/// The offset of the record of each exception class: `vectors.S` reads it.
#[cfg_attr(target_os = "none", unsafe(no_mangle))]
pub static EXIT_RECORDS: [u16; 64] = {
    let mut records = [offset(Reason::Other); 64];
    records[class::HVC64 as usize] = offset(Reason::Hypercall);
    records[class::SMC64 as usize] = offset(Reason::FirmwareCall);
    records[class::SYSTEM_REGISTER as usize] = offset(Reason::SystemRegister);
    records[class::DATA_ABORT as usize] = offset(Reason::DataAbort);
    records[class::INSTRUCTION_ABORT as usize] = offset(Reason::InstructionAbort);
    records[class::WFX as usize] = offset(Reason::Wait);
    records
};

const fn offset(reason: Reason) -> u16 {
    record_offset(reason) as u16
}
