// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The light handlers by exit code, for the run loops.

use super::tier::{Code, Handler};
use super::{cpuid, halt, hypercall, interrupt, msr, port};
use crate::cpu::svm::{Vmcb, code};
use crate::vcpu::frame::Frame;
use crate::vcpu::next::{Counted, Known, Named, Next};

/// The light handlers by exit code: `vectors.S` calls them.
#[cfg_attr(target_os = "none", unsafe(no_mangle))]
pub static LIGHT_HANDLERS: [Handler; 256] = handlers::<Known>(CPUID);

/// [`LIGHT_HANDLERS`] of CPUs that name the next instruction.
#[cfg_attr(target_os = "none", unsafe(no_mangle))]
pub static LIGHT_HANDLERS_NAMED: [Handler; 256] = handlers::<Named>(CPUID_NAMED);

/// [`LIGHT_HANDLERS`] of the timed loop.
#[cfg_attr(target_os = "none", unsafe(no_mangle))]
pub static LIGHT_HANDLERS_TIMED: [Handler; 256] = handlers::<Counted<Known>>(CPUID);

/// [`LIGHT_HANDLERS`] of the timed loop of CPUs that name the next instruction.
#[cfg_attr(target_os = "none", unsafe(no_mangle))]
pub static LIGHT_HANDLERS_NAMED_TIMED: [Handler; 256] = handlers::<Counted<Named>>(CPUID_NAMED);

/// CPUID's handlers: stubs in assembly, because it writes RBX.
#[cfg(target_os = "none")]
const CPUID: Handler = turnstile_light_cpuid;
/// See [`CPUID`].
#[cfg(target_os = "none")]
const CPUID_NAMED: Handler = turnstile_light_cpuid_named;
/// On the host RBX is in the frame already.
#[cfg(not(target_os = "none"))]
const CPUID: Handler = cpuid::light::<Known>;
/// See [`CPUID`].
#[cfg(not(target_os = "none"))]
const CPUID_NAMED: Handler = cpuid::light::<Named>;

/// Makes a table.
const fn handlers<N: Next>(cpuid: Handler) -> [Handler; 256] {
    let mut handlers: [Handler; 256] = [other; 256];
    handlers[code::VMMCALL as usize] = hypercall::light::<N>;
    handlers[code::CPUID as usize] = cpuid;
    handlers[code::MSR as usize] = msr::light::<N>;
    handlers[code::IOIO as usize] = port::light::<N>;
    handlers[code::HLT as usize] = halt::light::<N>;
    handlers[code::INTR as usize] = interrupt::light::<N>;
    handlers
}

#[cfg(target_os = "none")]
#[allow(improper_ctypes, reason = "the stubs hand their arguments on to a function of this crate")]
unsafe extern "C" {
    safe fn turnstile_light_cpuid(frame: &mut Frame, vmcb: &mut Vmcb, code: u32) -> u32;
    safe fn turnstile_light_cpuid_named(frame: &mut Frame, vmcb: &mut Vmcb, code: u32) -> u32;
}

/// What the stubs call, once RBX is in the frame.
#[cfg(target_os = "none")]
#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.hot")]
extern "C" fn turnstile_light_cpuid_rbx(frame: &mut Frame, vmcb: &mut Vmcb, code: u32) -> u32 {
    cpuid::light::<Known>(frame, vmcb, code)
}

/// The same on CPUs that name the next instruction.
#[cfg(target_os = "none")]
#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.hot")]
extern "C" fn turnstile_light_cpuid_rbx_named(frame: &mut Frame, vmcb: &mut Vmcb, code: u32) -> u32 {
    cpuid::light::<Named>(frame, vmcb, code)
}

/// All other exits are left to the full tier.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
pub(super) extern "C" fn other(_: &mut Frame, _: &mut Vmcb, _: u32) -> u32 {
    Code::FULL
}
