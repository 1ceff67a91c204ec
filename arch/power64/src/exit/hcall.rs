// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls to the hypervisor: the table of light handlers by number, and those that the full tier carries out.

#[cfg(target_os = "none")]
use alloc::boxed::Box;

use turnstile_papr::code::Code as Return;
use turnstile_papr::hcall::Hcall;
use turnstile_papr::{page_init, rtas};

use super::{Answer, Arguments, calls, interrupts, xics};
use crate::cpu::regs::SPRG0;
use crate::vcpu::frame::Frame;
use crate::vm::Vcpu;
use crate::vm::monitor::Monitor;

/// A light handler: a leaf that calls no function.
pub type Handler = extern "C" fn(&'static Vcpu, Arguments) -> Answer;

/// How many numbers the table has: four apart, all that PAPR has given out. `vectors.S` has the same number.
const COUNT: usize = 0x480 / 4;

/// What handles the calls, by their numbers, and all numbers beyond.
#[repr(C)]
pub struct Table<H: 'static> {
    calls: [H; COUNT],
    far: H,
}

impl<H: Copy> Table<H> {
    /// Makes the table from what handles a call.
    const fn new(unknown: H, far: H, handlers: &[(Hcall, H)], leave: H) -> Self {
        let mut calls = [unknown; COUNT];
        let mut next = 0;
        while next < Hcall::ALL.len() {
            let call = Hcall::ALL[next];
            if let Some(number) = call.number()
                && number / 4 < COUNT as u64
            {
                calls[number as usize / 4] = find(call, handlers, leave);
            }
            next += 1;
        }
        Self { calls, far }
    }
}

/// What handles a call: what is listed for it, or what leaves it to the full tier.
const fn find<H: Copy>(call: Hcall, handlers: &[(Hcall, H)], leave: H) -> H {
    let mut next = 0;
    while next < handlers.len() {
        if handlers[next].0 as u8 == call as u8 {
            return handlers[next].1;
        }
        next += 1;
    }
    leave
}

/// The calls that the light tier carries out.
const LIGHT: [(Hcall, Handler); 8] = [
    (Hcall::SetSprg0, set_sprg0),
    (Hcall::Confer, interrupts::confer),
    (Hcall::Cede, interrupts::cede),
    (Hcall::Prod, interrupts::prod),
    (Hcall::Eoi, xics::eoi),
    (Hcall::Cppr, xics::cppr),
    (Hcall::Ipi, xics::ipi),
    (Hcall::Xirr, xics::xirr),
];

/// Their handlers: for vCPUs with statistics, whose entry calls them after it has taken the time.
pub(crate) static TABLE: Table<Handler> = Table::new(unknown, unknown, &LIGHT, LEAVE);

/// An entry of `calls.S`, which the vectors jump to.
#[cfg(target_os = "none")]
pub type Jump = unsafe extern "C" fn();

/// For vCPUs without statistics.
#[cfg(target_os = "none")]
pub(crate) static ENTRIES: Table<Jump> = Table::new(
    turnstile_call_unknown,
    turnstile_call_far,
    &[
        (Hcall::SetSprg0, turnstile_call_set_sprg0),
        (Hcall::Confer, turnstile_call_confer),
        (Hcall::Cede, turnstile_call_cede),
        (Hcall::Prod, turnstile_call_prod),
        (Hcall::Eoi, turnstile_call_eoi),
        (Hcall::Cppr, turnstile_call_cppr),
        (Hcall::Ipi, turnstile_call_ipi),
        (Hcall::Xirr, turnstile_call_xirr),
    ],
    turnstile_call_leave,
);

/// For vCPUs with statistics: takes the time, and goes on with [`TABLE`].
#[cfg(target_os = "none")]
pub(crate) static TIMED_ENTRIES: Table<Jump> =
    Table { calls: [turnstile_timed_call; COUNT], far: turnstile_timed_far };

/// For vCPUs that do without techniques: does what those would save, and goes on with [`TABLE`].
#[cfg(all(target_os = "none", feature = "ablation"))]
pub(crate) static NAIVE_ENTRIES: Table<Jump> =
    Table { calls: [turnstile_naive_call; COUNT], far: turnstile_call_far };

/// Makes a table like the one at `calls`, of a vCPU whose VM has a service for its terminal. For each such vCPU: in the image each
/// entry would be a relocation, too.
#[cfg(target_os = "none")]
pub(crate) fn with_terminal(calls: *const (), timed: bool) -> *const () {
    let (get, put): (Jump, Jump) = match timed {
        true => (turnstile_call_timed_terminal_get, turnstile_call_timed_terminal_put),
        false => (turnstile_call_terminal_get, turnstile_call_terminal_put),
    };
    // SAFETY: one of the tables above.
    let entries = unsafe { &*calls.cast::<Table<Jump>>() };
    let mut table = Box::new(Table { calls: entries.calls, far: entries.far });
    for (call, handler) in [(Hcall::GetTermChar, get), (Hcall::PutTermChar, put)] {
        if let Some(place) = call.number().and_then(|number| table.calls.get_mut(number as usize / 4)) {
            *place = handler;
        }
    }
    core::ptr::from_ref(Box::leak(table)).cast()
}

#[cfg(target_os = "none")]
unsafe extern "C" {
    fn turnstile_call_unknown();
    fn turnstile_call_far();
    fn turnstile_call_leave();
    fn turnstile_call_set_sprg0();
    fn turnstile_call_confer();
    fn turnstile_call_cede();
    fn turnstile_call_prod();
    fn turnstile_call_eoi();
    fn turnstile_call_cppr();
    fn turnstile_call_ipi();
    fn turnstile_call_xirr();
    fn turnstile_call_terminal_get();
    fn turnstile_call_terminal_put();
    fn turnstile_call_timed_terminal_get();
    fn turnstile_call_timed_terminal_put();
    fn turnstile_timed_call();
    fn turnstile_timed_far();
    #[cfg(feature = "ablation")]
    fn turnstile_naive_call();
}

/// On the host nothing jumps through tables.
#[cfg(not(target_os = "none"))]
pub(crate) use host::*;

#[cfg(not(target_os = "none"))]
mod host {
    use super::{Handler, TABLE, Table};

    pub(crate) static ENTRIES: &Table<Handler> = &TABLE;
    pub(crate) static TIMED_ENTRIES: &Table<Handler> = &TABLE;
    #[cfg(feature = "ablation")]
    pub(crate) static NAIVE_ENTRIES: &Table<Handler> = &TABLE;

    pub(crate) fn with_terminal(calls: *const (), _timed: bool) -> *const () {
        calls
    }
}

/// The number that is no part of the table: `calls.S` compares with it.
const _: () = assert!(matches!(Hcall::Rtas.number(), Some(0xf000)));

#[cfg(test)]
impl Table<Handler> {
    /// Returns the handler of a number of the table.
    pub(crate) fn get(&self, number: u64) -> Handler {
        self.calls[number as usize / 4]
    }
}

/// Leaves a call to the full tier: `calls.S`, which has its number and its arguments in registers.
#[cfg(target_os = "none")]
const LEAVE: Handler = turnstile_leave_call;
/// See [`LEAVE`]; on the host nothing has them.
#[cfg(not(target_os = "none"))]
const LEAVE: Handler = leave;

#[cfg(target_os = "none")]
#[allow(improper_ctypes, reason = "no other language is called: the stub is assembly of this crate")]
unsafe extern "C" {
    safe fn turnstile_leave_call(vcpu: &'static Vcpu, arguments: Arguments) -> Answer;
}

#[cfg(not(target_os = "none"))]
extern "C" fn leave(vcpu: &'static Vcpu, Arguments([value, ..]): Arguments) -> Answer {
    Answer { code: 0, value }.and(vcpu, super::Code::FULL)
}

/// A number that is no call's.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
extern "C" fn unknown(_: &'static Vcpu, _: Arguments) -> Answer {
    Answer::code(Return::FUNCTION.value())
}

/// H_SET_SPRG0: as the guest could itself.
#[cfg_attr(
    target_os = "none",
    unsafe(link_section = ".text.hot"),
    unsafe(export_name = "turnstile_light_set_sprg0")
)]
extern "C" fn set_sprg0(_: &'static Vcpu, Arguments([value, ..]): Arguments) -> Answer {
    // SAFETY: the resident vCPU's own register.
    unsafe { SPRG0.write(value) };
    Answer::SUCCESS
}

/// Carries out a call that was left, with its number and arguments in the frame. Returns what comes then: zero, or
/// a waiting [`super::Code`].
#[inline(never)] // Apart from calls that are finished.
pub(super) fn full(frame: &mut Frame, vcpu: &'static Vcpu, monitor: &dyn Monitor) -> u32 {
    let call = Hcall::of_any(frame.gpr(3));
    let arguments = frame.arguments();
    #[cfg(feature = "ablation")]
    if let Some(then) = carry_out(frame, frame.gpr(3), arguments) {
        return then;
    }
    // What the guest finds in the registers that a call may change, unless the call puts something there.
    frame.clear_changeable();
    frame.set_gpr(3, 0);
    frame.set_gpr(4, 0);
    let [first, second, third, fourth, ..] = arguments;
    let code = match call {
        Hcall::RegisterVpa if calls::is_dry(vcpu, [(third, 1)]) => return again(frame, call, arguments),
        Hcall::PageInit
            if calls::is_dry(vcpu, page_init::pages([first, second, third]).map(|page| (page, 1))) =>
        {
            return again(frame, call, arguments);
        }
        Hcall::Rtas if calls::is_dry(vcpu, [(first, rtas::BLOCK)]) => return again(frame, call, arguments),
        Hcall::IntSetQueueConfig if calls::is_dry(vcpu, [(fourth, 1)]) => {
            return again(frame, call, arguments);
        }
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

/// Lets the guest make a call once more.
#[cold]
#[inline(never)] // Not part of what other calls pay.
fn again(frame: &mut Frame, call: Hcall, arguments: [u64; 7]) -> u32 {
    frame.set_gpr(3, call.number().unwrap_or(0));
    for (register, argument) in (4..).zip(arguments) {
        frame.set_gpr(register, argument);
    }
    // It is behind the instruction.
    frame.pc = frame.pc.wrapping_sub(4);
    0
}

/// In the full tier, what a light handler would have done, for vCPUs that do without the light tier. `None` if it leaves that.
#[cfg(feature = "ablation")]
fn carry_out(frame: &mut Frame, number: u64, arguments: [u64; 7]) -> Option<u32> {
    let handler = *TABLE.calls.get(number as usize / 4)?;
    if core::ptr::fn_addr_eq(handler, LEAVE) {
        return None;
    }
    let vcpu = super::resident(frame);
    let answer = handler(vcpu, Arguments(arguments));
    let why = vcpu.attention.noted();
    vcpu.attention.note(0);
    frame.clear_changeable();
    frame.set_gpr(3, answer.code);
    frame.set_gpr(4, answer.value);
    // Waiting lets interrupts in.
    frame.msr = crate::cpu::regs::SRR1.read();
    Some(why)
}
