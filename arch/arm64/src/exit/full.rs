// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Full exits: all general registers are in the frame.

use turnstile_vm::attention::Reasons;
use turnstile_vm::lifecycle::Stop;
use turnstile_vm::psci::{Action, SUCCESS};

use super::light::{self, Code};
use super::{inject, irq, mmio, sysreg, wait};
use crate::cpu::{class, regs};
use crate::irq::{Acknowledged, Gic, Gicv2, Gicv3, Gicv3Legacy};
use crate::time;
use crate::vcpu::facility;
use crate::vcpu::frame::Frame;
use crate::vm::{Owned, Vcpu, monitor};

/// PSCI SYSTEM_RESET2, both calling conventions: Linux uses it for a panic (`reboot=panic_warm`), so it is
/// taken for the announcement of a crash.
const SYSTEM_RESET2: u32 = 0x12;

/// Why a VM was stopped by the hypervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Crash {
    /// The guest asked for a warm reset, as Linux does after a panic.
    WarmReset = 1,
    /// The guest's access ended in an SError.
    SError = 2,
}

/// Full tier: `code` says why ([`Code`]). Returns when the guest is to be entered.
#[cfg_attr(target_os = "none", unsafe(no_mangle))]
pub extern "C" fn turnstile_full_exit(frame: &mut Frame, code: u32) {
    full_exit::<Gicv3>(frame, code);
}

/// [`turnstile_full_exit`] of the vectors of a GICv2.
#[cfg_attr(target_os = "none", unsafe(no_mangle))]
pub extern "C" fn turnstile_full_exit_gicv2(frame: &mut Frame, code: u32) {
    full_exit::<Gicv2>(frame, code);
}

/// [`turnstile_full_exit`] of the vectors of a GICv2 on a GICv3.
#[cfg_attr(target_os = "none", unsafe(no_mangle))]
pub extern "C" fn turnstile_full_exit_legacy(frame: &mut Frame, code: u32) {
    full_exit::<Gicv3Legacy>(frame, code);
}

#[inline(always)] // Its callers are what it is for.
fn full_exit<G: Gic>(frame: &mut Frame, code: u32) {
    let vcpu = light::resident(frame);
    // SAFETY: the exit handler of the CPU where the vCPU is resident; the light tier has returned. Not used beyond the
    // point where the vCPU may give its CPU away.
    let owned = unsafe { vcpu.owned() };
    let then = if code == Code::SYNC {
        synchronous::<G>(frame, vcpu, owned)
    } else {
        asynchronous::<G>(vcpu, owned, code);
        Then::Enter
    };
    vcpu.vm.with_gic::<G, _>(|cx| owned.gic.settle(cx));
    match then {
        Then::Enter => {}
        Then::Suspend => wait::suspend::<G>(frame, vcpu),
        Then::GiveWay => wait::give_way::<G>(frame, vcpu),
        Then::WaitForStart => wait::wait_for_start::<G>(frame, vcpu, monitor()),
    }
    while vcpu.attention.is_pending() {
        wait::attend::<G>(frame, vcpu, monitor);
    }
}

/// An interrupt, an SError, or nothing but what the light tier has left to do.
fn asynchronous<G: Gic>(vcpu: &'static Vcpu, owned: &mut Owned, code: u32) {
    match code & !0xff_ffff {
        Code::IRQ => irq::full::<G>(vcpu, owned, monitor(), Acknowledged(code & 0xff_ffff)),
        Code::SERROR => vcpu.vm.stop(Stop::Crash(Crash::SError as u16)),
        _ => {}
    }
}

/// What comes after an exit is handled.
enum Then {
    /// The guest is entered.
    Enter,
    /// The vCPU waits for an interrupt.
    Suspend,
    /// The vCPU would wait, if another one wants its CPU.
    GiveWay,
    /// The vCPU is off.
    WaitForStart,
}

/// ISS.TI of a WFx exit: zero for WFI; the others, with and without a time-out, may end early.
const WFX_TI: u32 = 3;

fn synchronous<G: Gic>(frame: &mut Frame, vcpu: &'static Vcpu, owned: &mut Owned) -> Then {
    let esr = regs::ESR_EL2.read();
    let iss = esr as u32 & 0x1ff_ffff;
    match class::of(esr) {
        class::HVC64 => return call::<G>(frame, vcpu, owned),
        class::SMC64 => {
            // An SMC trapped by HCR_EL2.TSC has not moved on (Arm ARM D1.3.1, preferred return address).
            light::skip();
            return call::<G>(frame, vcpu, owned);
        }
        class::SYSTEM_REGISTER => sysreg::full::<G>(frame, vcpu, owned, iss),
        class::DATA_ABORT => mmio::data_abort::<G>(frame, vcpu, owned, monitor(), iss),
        class::INSTRUCTION_ABORT => mmio::instruction_abort(vcpu, iss),
        class::WFX => {
            light::skip();
            return if iss & WFX_TI == 0 { Then::Suspend } else { Then::GiveWay };
        }
        class if facility::trap(vcpu, class) => {}
        _ => inject::undefined(),
    }
    Then::Enter
}

/// An SMCCC call by HVC or SMC. Nothing of it reaches the firmware.
fn call<G: Gic>(frame: &mut Frame, vcpu: &'static Vcpu, owned: &mut Owned) -> Then {
    let function = frame.get(0) as u32;
    let arguments = [frame.get(1), frame.get(2), frame.get(3)];
    match vcpu.vm.psci.call(vcpu.index, function, arguments) {
        Action::Return(value) => frame.set(0, value),
        Action::Start(target) => {
            frame.set(0, SUCCESS);
            if let Some(target) = vcpu.vm.vcpu(target) {
                target.post(Reasons::START);
            }
        }
        Action::Suspend => {
            frame.set(0, SUCCESS);
            return Then::Suspend;
        }
        Action::Off => {
            vcpu.vm.with_gic::<G, _>(|cx| owned.gic.power_off(cx));
            frame.timing.end(time::ticks);
            return Then::WaitForStart;
        }
        Action::SystemOff => vcpu.vm.stop(Stop::PowerOff),
        Action::SystemReset if function & 0xffff == SYSTEM_RESET2 => {
            vcpu.vm.stop(Stop::Crash(Crash::WarmReset as u16));
        }
        Action::SystemReset => vcpu.vm.stop(Stop::Reset),
    }
    Then::Enter
}
