// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exits: the light tier, and what it hands to the full tier.
//!
//! A light handler is an ordinary function of the C ABI, so the compiler preserves RBX, RBP and R12–R15 of the guest and
//! the run loop has pushed the others. It leaves every other register of the guest where it is, does not touch the local
//! APIC unless the exit is about it, and returns to the guest after one look at the attention word. What it cannot finish
//! it leaves, with nothing done, to [`full`].
//!
//! | file | exits |
//! |---|---|
//! | `hypercall` | VMMCALL |
//! | `cpuid` | CPUID |
//! | `apic` | the local APIC's MSRs and page |
//! | `msr` | RDMSR, WRMSR, XSETBV |
//! | `port` | IN, OUT and their string forms |
//! | `interrupt` | physical interrupts and NMIs |
//! | `memory` | nested page faults: devices in memory, and what is not there |
//! | `access`, `bus` | what an instruction that is carried out does in the guest's memory |
//! | `event` | exceptions to the guest, events cut short, NMIs |
//! | `full` | everything else, and what light exits leave |
//! | `wait` | HLT, the attention word, and vCPUs that do not run |

mod access;
mod apic;
mod bus;
mod cpuid;
pub mod event;
pub mod full;
mod hypercall;
mod interrupt;
mod memory;
mod msr;
#[cfg(feature = "ablation")]
pub(crate) mod naive;
mod port;
pub mod wait;

use core::marker::PhantomData;

use turnstile_vm::attention::Reasons;

use crate::frame::Frame;
use crate::statistics;
use crate::svm::Vmcb;
use crate::vcpu::Vcpu;

/// Exit codes (APM vol. 2, appendix C).
pub(crate) mod code {
    pub const DEBUG: u32 = 0x41;
    pub const ALIGNMENT: u32 = 0x51;
    pub const MACHINE_CHECK: u32 = 0x52;
    pub const INTR: u32 = 0x60;
    pub const NMI: u32 = 0x61;
    pub const INIT: u32 = 0x63;
    pub const RDPMC: u32 = 0x6f;
    pub const CPUID: u32 = 0x72;
    pub const IRET: u32 = 0x74;
    pub const INVD: u32 = 0x76;
    pub const PAUSE: u32 = 0x77;
    pub const HLT: u32 = 0x78;
    pub const IOIO: u32 = 0x7b;
    pub const MSR: u32 = 0x7c;
    pub const SHUTDOWN: u32 = 0x7f;
    pub const VMMCALL: u32 = 0x81;
    pub const WBINVD: u32 = 0x89;
    pub const XSETBV: u32 = 0x8d;
    pub const NESTED_PAGE_FAULT: u32 = 0x400;
    /// The low half of −1: VMRUN refused the control block.
    pub const INVALID: u32 = u32::MAX;
}

/// Why the light tier did not re-enter the guest: a code with [`Code::FULL`], or, without it, the attention word is not
/// zero.
pub struct Code;

impl Code {
    /// The exit itself is not finished; the control block says what it is.
    pub const FULL: u32 = 1 << 31;
    /// The exit is finished, and the vCPU waits for an interrupt.
    pub const WAIT: u32 = Self::FULL | 1 << 28;
    /// Physical interrupts have been taken that have to be served; the low bits say which.
    pub const ARRIVED: u32 = Self::FULL | 2 << 28;
    /// The bits that tell codes apart.
    pub const KIND: u32 = 0xf << 28;
}

/// No attention word, which light exits return as it is, is taken for a code.
const _: () = assert!(Reasons::all().bits() <= 0xff_ffff);

/// How an instruction that exited is stepped over.
pub trait Next: 'static {
    /// Whether light exits count events: for vCPUs that keep statistics.
    const COUNTS: bool = false;
    /// Returns where the next instruction is. `length` is that of the instruction without prefixes.
    fn address(vmcb: &Vmcb, length: u64) -> u64;
}

/// On a CPU that does not name the next instruction: by the length that the instruction has. Redundant prefixes, which no
/// compiler or assembler gives these instructions, are not counted (CAVEATS.md).
pub struct Known;

impl Next for Known {
    #[inline(always)] // One addition.
    fn address(vmcb: &Vmcb, length: u64) -> u64 {
        vmcb.rip().wrapping_add(length)
    }
}

/// On a CPU that does ([`crate::svm::Features::NEXT_RIP`]).
pub struct Named;

impl Next for Named {
    #[inline(always)] // One load.
    fn address(vmcb: &Vmcb, _: u64) -> u64 {
        vmcb.next_rip()
    }
}

/// For vCPUs that keep statistics.
pub struct Counted<N>(PhantomData<N>);

impl<N: Next> Next for Counted<N> {
    const COUNTS: bool = true;

    #[inline(always)] // Its type's.
    fn address(vmcb: &Vmcb, length: u64) -> u64 {
        N::address(vmcb, length)
    }
}

/// RFLAGS (APM vol. 2, 3.1.6).
pub(crate) mod flags {
    pub const TRAP: u64 = 1 << 8;
    pub const INTERRUPT: u64 = 1 << 9;
    pub const DIRECTION: u64 = 1 << 10;
    pub const RESUME: u64 = 1 << 16;
    /// Always set.
    pub const RESERVED: u64 = 1 << 1;
}

/// Moves past the instruction that exited.
#[inline(always)] // Seven instructions of most light exits.
pub(crate) fn skip<N: Next>(vmcb: &mut Vmcb, length: u64) {
    skip_to(vmcb, N::address(vmcb, length));
}

/// Goes on at `next`, as if the instruction before had been executed: its interrupt shadow is over, and who steps
/// through the guest gets its trap.
#[inline(always)] // Part of `skip`.
pub(crate) fn skip_to(vmcb: &mut Vmcb, next: u64) {
    vmcb.set_rip(next);
    vmcb.set_interrupt_shadow(0);
    if vmcb.rflags() & (flags::TRAP | flags::RESUME) != 0 {
        event::executed(vmcb);
    }
}

/// Ends a light exit that is done: what the run loop branches on is the attention word itself.
#[inline(always)] // Two loads: the end of every light exit.
pub(crate) fn done<N: Next>(frame: &Frame, vmcb: &Vmcb) -> u32 {
    let vcpu = resident(frame);
    let word = vcpu.attention.word();
    if N::COUNTS && word == 0 {
        // Else the full tier does.
        statistics::count_event(vcpu, vmcb);
    }
    word
}

/// Returns the resident vCPU.
#[inline(always)] // One load.
pub(crate) fn resident(frame: &Frame) -> &'static Vcpu {
    // SAFETY: the run loop stores a vCPU that lives for ever before the guest is first entered.
    unsafe { &*frame.vcpu }
}

/// A light handler: takes the frame, the control block and the exit code; returns zero to re-enter, the attention word,
/// or a [`Code`].
///
/// The frequent handlers are leaves without a stack frame of their own; what needs one is behind a tail call.
pub type Handler = extern "C" fn(&mut Frame, &mut Vmcb, u32) -> u32;

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
    handlers[code::HLT as usize] = wait::light_halt::<N>;
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
extern "C" fn other(_: &mut Frame, _: &mut Vmcb, _: u32) -> u32 {
    Code::FULL
}

/// Nested page faults, and exits that no table has.
#[cfg_attr(target_os = "none", unsafe(no_mangle), unsafe(link_section = ".text.hot"))]
pub extern "C" fn turnstile_nested_page_fault(frame: &mut Frame, vmcb: &mut Vmcb, code: u32) -> u32 {
    if code == code::NESTED_PAGE_FAULT { memory::light::<Known>(frame, vmcb) } else { Code::FULL }
}

/// [`turnstile_nested_page_fault`] of the timed loops.
#[cfg_attr(target_os = "none", unsafe(no_mangle), unsafe(link_section = ".text.hot"))]
pub extern "C" fn turnstile_nested_page_fault_timed(frame: &mut Frame, vmcb: &mut Vmcb, code: u32) -> u32 {
    if code == code::NESTED_PAGE_FAULT { memory::light::<Counted<Known>>(frame, vmcb) } else { Code::FULL }
}

/// Full tier: `why` is what the light tier returned. Returns when the guest is to be entered.
#[cfg_attr(target_os = "none", unsafe(no_mangle))]
pub extern "C" fn turnstile_full_exit(frame: &mut Frame, _: *mut Vmcb, why: u32) {
    full::exit::<Known>(frame, why);
}

/// [`turnstile_full_exit`] on CPUs that name the next instruction.
#[cfg_attr(target_os = "none", unsafe(no_mangle))]
pub extern "C" fn turnstile_full_exit_named(frame: &mut Frame, _: *mut Vmcb, why: u32) {
    full::exit::<Named>(frame, why);
}

#[cfg(test)]
pub(crate) mod tests;
