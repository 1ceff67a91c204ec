// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls to the hypervisor: the table of light handlers by number, and those that the full tier carries out.

use turnstile_papr::code::Code as Return;
use turnstile_papr::hcall::Hcall;

use super::{Answer, Arguments, calls, interrupts, xics};
use crate::cpu::regs::SPRG0;
use crate::vcpu::frame::Frame;
use crate::vm::Vcpu;
use crate::vm::monitor::Monitor;

/// A light handler. The frequent ones are leaves without a stack frame.
pub type Handler = extern "C" fn(&mut Frame, Arguments) -> Answer;

/// How many numbers the table has: four apart, all that PAPR has given out. `vectors.S` has the same number.
const COUNT: usize = 0x480 / 4;

/// The light handlers.
#[repr(C)]
pub struct Table {
    calls: [Handler; COUNT],
    /// Of numbers beyond: takes the number and the first argument.
    far: Far,
}

/// For vCPUs without statistics.
pub(crate) const TABLE: &Table = {
    static TABLE: Table = Table::new();
    &TABLE
};

/// For vCPUs with statistics: takes the time, and goes on with [`TABLE`].
pub(crate) const TIMED_TABLE: &Table = {
    static TIMED_HANDLERS: Table = Table { calls: [TIMED; COUNT], far: TIMED_FAR };
    &TIMED_HANDLERS
};

/// For vCPUs that do without techniques: does what those would save, and goes on with [`TABLE`].
#[cfg(feature = "ablation")]
pub(crate) const NAIVE_TABLE: &Table = {
    static NAIVE_HANDLERS: Table = Table { calls: [NAIVE; COUNT], far };
    &NAIVE_HANDLERS
};

impl Table {
    const fn new() -> Self {
        let mut calls: [Handler; COUNT] = [unknown; COUNT];
        let mut next = 0;
        while next < Hcall::ALL.len() {
            let call = Hcall::ALL[next];
            if let Some(number) = call.number()
                && number / 4 < COUNT as u64
            {
                calls[number as usize / 4] = handler(call);
            }
            next += 1;
        }
        Self { calls, far }
    }

    /// Returns the handler of a number of the table.
    #[cfg(test)]
    pub(crate) fn get(&self, number: u64) -> Handler {
        self.calls[number as usize / 4]
    }
}

/// The light handler of a call: its own, or the one that leaves it to the full tier.
const fn handler(call: Hcall) -> Handler {
    match call {
        Hcall::Unknown => unknown,
        Hcall::SetSprg0 => set_sprg0,
        Hcall::Confer => interrupts::confer,
        Hcall::Cede => interrupts::cede,
        Hcall::Prod => interrupts::prod,
        Hcall::Eoi => xics::eoi,
        Hcall::Cppr => xics::cppr,
        Hcall::Ipi => xics::ipi,
        Hcall::Xirr => xics::xirr,
        _ => LEAVE,
    }
}

/// What handles a number beyond the table.
type Far = extern "C" fn(&mut Frame, u64, u64) -> Answer;

/// Leaves a call to the full tier.
#[cfg(target_os = "none")]
const LEAVE: Handler = turnstile_leave_call;
/// Takes the time of a call.
#[cfg(target_os = "none")]
const TIMED: Handler = turnstile_timed_call;
/// Takes the time of a call beyond the table.
#[cfg(target_os = "none")]
const TIMED_FAR: Far = turnstile_timed_far;
/// Does what techniques would save.
#[cfg(all(target_os = "none", feature = "ablation"))]
const NAIVE: Handler = turnstile_naive_call;
/// See [`NAIVE`].
#[cfg(all(not(target_os = "none"), feature = "ablation"))]
const NAIVE: Handler = unknown;
/// See [`LEAVE`]; on the host nothing takes the time.
#[cfg(not(target_os = "none"))]
const TIMED: Handler = unknown;
/// See [`TIMED`].
#[cfg(not(target_os = "none"))]
const TIMED_FAR: Far = far;
/// See [`LEAVE`]; on the host nothing knows the number.
#[cfg(not(target_os = "none"))]
const LEAVE: Handler = leave;

#[cfg(target_os = "none")]
#[allow(improper_ctypes, reason = "no other language is called: the stub is assembly of this crate")]
unsafe extern "C" {
    safe fn turnstile_leave_call(frame: &mut Frame, arguments: Arguments) -> Answer;
    safe fn turnstile_timed_call(frame: &mut Frame, arguments: Arguments) -> Answer;
    #[cfg(feature = "ablation")]
    safe fn turnstile_naive_call(frame: &mut Frame, arguments: Arguments) -> Answer;
    safe fn turnstile_timed_far(frame: &mut Frame, number: u64, argument: u64) -> Answer;
}

#[cfg(not(target_os = "none"))]
extern "C" fn leave(frame: &mut Frame, Arguments(arguments): Arguments) -> Answer {
    Answer::leave(frame, frame.gpr(3), arguments)
}

/// A number that is no call's.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
extern "C" fn unknown(_: &mut Frame, _: Arguments) -> Answer {
    Answer::code(Return::FUNCTION.value())
}

/// H_SET_SPRG0: as the guest could itself.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
extern "C" fn set_sprg0(_: &mut Frame, Arguments([value, ..]): Arguments) -> Answer {
    // SAFETY: the resident vCPU's own register.
    unsafe { SPRG0.write(value) };
    Answer::SUCCESS
}

/// A number beyond the table: the firmware's, or none.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
extern "C" fn far(frame: &mut Frame, number: u64, argument: u64) -> Answer {
    if Hcall::of_any(number) == Hcall::Unknown {
        return Answer::code(Return::FUNCTION.value());
    }
    Answer::leave(frame, number, [argument, 0, 0, 0, 0, 0, 0])
}

/// Carries out a call that was left, with its number and arguments in the frame. Returns what comes then: zero, or
/// a waiting [`super::Code`].
pub(super) fn full(frame: &mut Frame, vcpu: &'static Vcpu, monitor: &dyn Monitor) -> u32 {
    let call = Hcall::of_any(frame.gpr(3));
    let arguments = frame.arguments();
    #[cfg(feature = "ablation")]
    if let Some(then) = carry_out(frame, frame.gpr(3), arguments) {
        return then;
    }
    // What the guest finds in the registers that a call may change, unless the call puts something there.
    for register in [0].into_iter().chain(3..13) {
        frame.set_gpr(register, 0);
    }
    let code = match call {
        Hcall::RegisterVpa => calls::register_vpa(vcpu, arguments),
        Hcall::SetMode => calls::set_mode(vcpu, arguments),
        Hcall::RegisterProcTbl => calls::register_process_table(vcpu, arguments),
        Hcall::PutTermChar => calls::put_characters(vcpu, arguments, monitor),
        Hcall::GetTermChar => calls::get_characters(frame, vcpu, arguments, monitor),
        Hcall::PageInit => calls::initialize_page(vcpu, arguments),
        Hcall::Random => calls::random(frame),
        Hcall::GetCpuCharacteristics => calls::characteristics(frame),
        Hcall::SignalSysReset => calls::signal_reset(vcpu, arguments),
        Hcall::Rtas => return calls::firmware(frame, vcpu, arguments, monitor),
        _ => return interrupts::full(frame, vcpu, call, arguments),
    };
    frame.set_gpr(3, code.value());
    0
}

/// In the full tier, what a light handler would have done, for vCPUs that do without the light tier. `None` if it leaves that.
#[cfg(feature = "ablation")]
fn carry_out(frame: &mut Frame, number: u64, arguments: [u64; 7]) -> Option<u32> {
    let handler = *TABLE.calls.get(number as usize / 4)?;
    if core::ptr::fn_addr_eq(handler, LEAVE) {
        return None;
    }
    let answer = handler(frame, Arguments(arguments));
    let why = core::mem::take(&mut frame.why);
    if why == super::Code::FULL {
        return None;
    }
    for register in [0].into_iter().chain(5..13) {
        frame.set_gpr(register, 0);
    }
    frame.set_gpr(3, answer.code);
    frame.set_gpr(4, answer.value);
    // Waiting lets interrupts in.
    frame.msr = crate::cpu::regs::SRR1.read();
    Some(why)
}
