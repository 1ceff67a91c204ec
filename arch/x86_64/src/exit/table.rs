// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The light handlers by exit code, for the run loops.

use super::tier::{Code, Handler};
use super::{cpuid, halt, hypercall, interrupt, memory, msr, port};
use crate::cpu::svm::code;
use crate::vcpu::frame::Frame;
use crate::vcpu::next::{Counted, Known, Named, Next};

/// The light handlers by the low byte of the exit code: `vectors.S` calls them.
#[cfg_attr(target_os = "none", unsafe(no_mangle))]
pub static LIGHT_HANDLERS: [Handler; 256] = handlers::<Known>();

/// [`LIGHT_HANDLERS`] of CPUs that name the next instruction.
#[cfg_attr(target_os = "none", unsafe(no_mangle))]
pub static LIGHT_HANDLERS_NAMED: [Handler; 256] = handlers::<Named>();

/// [`LIGHT_HANDLERS`] of the timed loop.
#[cfg_attr(target_os = "none", unsafe(no_mangle))]
pub static LIGHT_HANDLERS_TIMED: [Handler; 256] = handlers::<Counted<Known>>();

/// [`LIGHT_HANDLERS`] of the timed loop of CPUs that name the next instruction.
#[cfg_attr(target_os = "none", unsafe(no_mangle))]
pub static LIGHT_HANDLERS_NAMED_TIMED: [Handler; 256] = handlers::<Counted<Named>>();

/// The low byte of an exit code, which is its place in a table.
pub const fn place(code: u32) -> usize {
    (code & 0xff) as usize
}

/// Makes a table.
const fn handlers<N: Next>() -> [Handler; 256] {
    let mut handlers: [Handler; 256] = [other; 256];
    handlers[place(code::VMMCALL)] = hypercall::light::<N>;
    handlers[place(code::CPUID)] = cpuid::light::<N>;
    handlers[place(code::MSR)] = msr::light::<N>;
    handlers[place(code::IOIO)] = port::light::<N>;
    handlers[place(code::HLT)] = halt::light::<N>;
    handlers[place(code::INTR)] = interrupt::light::<N>;
    // In the place of reads of CR0, which are not intercepted: the handler looks.
    handlers[place(code::NESTED_PAGE_FAULT)] = memory::light::<N>;
    handlers
}

/// All other exits are left to the full tier.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
pub(super) extern "C" fn other(_: &mut Frame, _: u64, _: u64) -> u32 {
    Code::FULL
}
