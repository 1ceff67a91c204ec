// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls: waiting and waking (LoPAPR 14.11.3), and those of XIVE.

use turnstile_papr::code::Code as Return;
use turnstile_papr::hcall::Hcall;
use turnstile_vm::attention::Reasons;

use super::{Answer, Arguments, Code, post, xics};
use crate::cpu::regs::SRR1;
use crate::vcpu::frame::Frame;
use crate::vcpu::interrupts;
use crate::vm::Vcpu;

/// External interrupts are enabled.
const MSR_EE: u64 = 1 << 15;
/// All vCPUs of the partition.
const ALL: u64 = u64::MAX;

/// H_CEDE: light if the vCPU has a reason to go on. Interrupts are enabled either way.
#[cfg_attr(
    target_os = "none",
    unsafe(link_section = ".text.hot"),
    unsafe(export_name = "turnstile_light_cede")
)]
pub(crate) extern "C" fn cede(vcpu: &'static Vcpu, _: Arguments) -> Answer {
    let state = SRR1.read();
    if state & MSR_EE == 0 {
        // SAFETY: the state to which the call returns is the guest's, with its interrupts enabled.
        unsafe { SRR1.write(state | MSR_EE) };
    }
    if interrupts::wakes(vcpu) { Answer::SUCCESS } else { Answer::SUCCESS.and(vcpu, Code::WAIT) }
}

/// H_PROD: the vCPU named does not wait when it cedes next, or waits no more.
#[cfg_attr(
    target_os = "none",
    unsafe(link_section = ".text.hot"),
    unsafe(export_name = "turnstile_light_prod")
)]
pub(crate) extern "C" fn prod(vcpu: &'static Vcpu, Arguments([target, ..]): Arguments) -> Answer {
    if target == vcpu.index as u64 {
        interrupts::prod(vcpu);
        return Answer::SUCCESS;
    }
    let Some(other) = vcpu.vm.vcpu(target as usize) else { return Answer::code(Return::PARAMETER.value()) };
    post(vcpu, other, Reasons::UNHALT)
}

/// H_CONFER: lets others run, if others share this CPU. Which of them is the scheduler's decision.
#[cfg_attr(
    target_os = "none",
    unsafe(link_section = ".text.hot"),
    unsafe(export_name = "turnstile_light_confer")
)]
pub(crate) extern "C" fn confer(vcpu: &'static Vcpu, Arguments([target, ..]): Arguments) -> Answer {
    if target != ALL && vcpu.vm.vcpu(target as usize).is_none() {
        return Answer::code(Return::PARAMETER.value());
    }
    match vcpu.thread {
        None => Answer::SUCCESS,
        Some(_) => Answer::SUCCESS.and(vcpu, Code::GIVE_WAY),
    }
}

/// Carries out a call that was left to the full tier: those of XIVE, and what of XICS has more to answer than a light exit
/// returns. Returns zero: none of them waits.
pub(crate) fn full(frame: &mut Frame, vcpu: &'static Vcpu, call: Hcall, arguments: [u64; 7]) -> u32 {
    match call {
        Hcall::XirrX => xics::accept_with_time(frame, vcpu),
        Hcall::Ipoll => xics::poll(frame, vcpu, arguments[0]),
        _ => exploit(frame, vcpu, call, arguments),
    }
    0
}

/// Carries out a call of XIVE.
fn exploit(frame: &mut Frame, vcpu: &'static Vcpu, call: Hcall, [a, b, c, d, e, ..]: [u64; 7]) {
    let reply = vcpu.vm.board.call(&vcpu.vm.life().ram, call, &[a, b, c, d, e]);
    frame.set_gpr(3, reply.code.value());
    for (register, value) in (4..).zip(reply.values) {
        frame.set_gpr(register, value);
    }
}
