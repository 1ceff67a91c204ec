// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Full exits: all general registers are in the frame. Also the waiting room of vCPUs that do not run.

use turnstile_exitstat::Reason;
use turnstile_vm::attention::Reasons;
use turnstile_vm::lifecycle::{Phase, Stop};
use turnstile_vm::psci::{Action, SUCCESS, Start};

use super::{Code, class, inject, irq, mmio, sysreg};
use crate::cpu;
use crate::frame::Frame;
use crate::irq::{
    Acknowledged, CpuInterface, Gic, Gicv2, Gicv3, Gicv3Legacy, PPI_PHYSICAL_TIMER, PPI_VIRTUAL_TIMER,
    in_gic, in_gic_of, use_vectors,
};
use crate::regs;
use crate::statistics;
use crate::switch;
use crate::vcpu::{Owned, Vcpu};
use crate::{Monitor, monitor};

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
    let vcpu = super::resident(frame);
    // SAFETY: the exit handler of the CPU where the vCPU is resident; the light tier has returned.
    let owned = unsafe { vcpu.owned() };
    let monitor = monitor();
    match code & !0xff_ffff {
        Code::SYNC => synchronous::<G>(frame, vcpu, owned, monitor),
        Code::IRQ => irq::full::<G>(vcpu, owned, monitor, Acknowledged(code & 0xff_ffff)),
        Code::SERROR => vcpu.vm.stop(Stop::Crash(Crash::SError as u16)),
        _ => {}
    }
    vcpu.vm.with_gic::<G, _>(|cx| owned.gic.settle(cx));
    while vcpu.attention.is_pending() {
        attend::<G>(frame, vcpu, owned, monitor);
    }
}

fn synchronous<G: Gic>(frame: &mut Frame, vcpu: &'static Vcpu, owned: &mut Owned, monitor: &dyn Monitor) {
    let esr = regs::ESR_EL2.read();
    let iss = esr as u32 & 0x1ff_ffff;
    match class::of(esr) {
        class::HVC64 => call::<G>(frame, vcpu, owned, monitor),
        class::SMC64 => {
            // An SMC trapped by HCR_EL2.TSC has not moved on (Arm ARM D1.3.1, preferred return address).
            super::skip();
            call::<G>(frame, vcpu, owned, monitor);
        }
        class::SYSTEM_REGISTER => sysreg::full::<G>(frame, vcpu, owned, iss),
        class::DATA_ABORT => mmio::data_abort::<G>(frame, vcpu, owned, monitor, iss),
        class::INSTRUCTION_ABORT => mmio::instruction_abort(iss),
        class::WFX => super::skip(),
        _ => inject::undefined(),
    }
}

/// An SMCCC call by HVC or SMC. Nothing of it reaches the firmware.
fn call<G: Gic>(frame: &mut Frame, vcpu: &'static Vcpu, owned: &mut Owned, monitor: &dyn Monitor) {
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
            suspend::<G>(frame, vcpu, owned, monitor);
        }
        Action::Off => {
            vcpu.vm.with_gic::<G, _>(|cx| owned.gic.power_off(cx));
            statistics::end(vcpu, frame.timing);
            wait_for_start::<G>(frame, vcpu, owned, monitor);
        }
        Action::SystemOff => vcpu.vm.stop(Stop::PowerOff),
        Action::SystemReset if function & 0xffff == SYSTEM_RESET2 => {
            vcpu.vm.stop(Stop::Crash(Crash::WarmReset as u16));
        }
        Action::SystemReset => vcpu.vm.stop(Stop::Reset),
    }
}

/// Waits as WFI does: until an interrupt for the guest is pending, or somebody wants attention.
fn suspend<G: Gic>(frame: &mut Frame, vcpu: &Vcpu, owned: &mut Owned, monitor: &dyn Monitor) {
    while !vcpu.attention.is_pending() && !owned.gic.has_pending(&mut G::interface()) {
        statistics::uncounted(frame, cpu::wfi);
        let acknowledged = G::acknowledge();
        // The acknowledge takes a kick away: the attention word it announces must be read after it, and reads of
        // memory are not ordered behind those of system registers.
        cpu::isb();
        irq::full::<G>(vcpu, owned, monitor, acknowledged);
    }
}

/// Looks at what the attention word names, once.
fn attend<G: Gic>(frame: &mut Frame, vcpu: &'static Vcpu, owned: &mut Owned, monitor: &dyn Monitor) {
    let reasons = vcpu.attention.take();
    irq::attend::<G>(vcpu, owned, reasons);
    if reasons.contains(Reasons::STOP) {
        // In the life that ends: the last one to acknowledge lets the next one begin.
        statistics::end(vcpu, frame.timing);
        acknowledge_stop::<G>(vcpu, owned, monitor);
        wait_for_start::<G>(frame, vcpu, owned, monitor);
    }
}

/// Leaves the VM's stop to be finished by whoever acknowledges last.
fn acknowledge_stop<G: Gic>(vcpu: &'static Vcpu, owned: &mut Owned, monitor: &dyn Monitor) {
    if !matches!(vcpu.vm.lifecycle.phase(), Phase::Stopping(_)) {
        return;
    }
    switch::stop_timers();
    owned.gic.reset(&vcpu.vm.vgic, &mut G::interface());
    owned.pmu = Default::default();
    if let Some(stop) = vcpu.vm.lifecycle.acknowledge(vcpu.index) {
        monitor.stopped(vcpu.vm, stop);
    }
}

/// The waiting room: the physical CPU of a vCPU that is off, or whose VM is stopped. Physical interrupts and
/// requests of others are served. Returns with the vCPU reset and about to run.
fn wait_for_start<G: Gic>(frame: &mut Frame, vcpu: &'static Vcpu, owned: &mut Owned, monitor: &dyn Monitor) {
    switch::stop_timers();
    let mut posted = false;
    loop {
        let reasons = vcpu.attention.take();
        if reasons.contains(Reasons::REMOTE) {
            crate::vcpu::serve_remote::<G>(vcpu, &mut owned.gic, &mut G::interface());
        }
        posted |= reasons.contains(Reasons::INBOX);
        if reasons.contains(Reasons::STOP) {
            acknowledge_stop::<G>(vcpu, owned, monitor);
        }
        if vcpu.index == 0 {
            monitor.waiting(vcpu.vm);
        }
        if matches!(vcpu.vm.lifecycle.phase(), Phase::Running)
            && let Some(start) = vcpu.vm.psci.take_start(vcpu.index)
        {
            begin::<G>(frame, vcpu, owned, start);
            if posted {
                // What came while the vCPU was off is looked at before it runs.
                vcpu.attention.raise(Reasons::INBOX);
            }
            return;
        }
        if !vcpu.attention.is_pending() {
            cpu::wfi();
        }
        let acknowledged = G::acknowledge();
        match G::intid(acknowledged) {
            PPI_VIRTUAL_TIMER | PPI_PHYSICAL_TIMER => {
                switch::stop_timers();
                G::deactivate(acknowledged);
            }
            _ => irq::full::<G>(vcpu, owned, monitor, acknowledged),
        }
    }
}

/// Gives a vCPU its reset state and its start address.
fn begin<G: Gic>(frame: &mut Frame, vcpu: &'static Vcpu, owned: &mut Owned, start: Start) {
    statistics::begin(frame, Reason::Start);
    owned.pmu = Default::default();
    switch::load(&vcpu.vm.residence(vcpu.index));
    switch::reset_vcpu(start.entry);
    G::Interface::reset();
    vcpu.vm.with_gic::<G, _>(|cx| {
        owned.gic.power_on(cx);
        owned.gic.load(cx);
    });
    #[cfg(feature = "ablation")]
    // SAFETY: the CPU where the vCPU has just become resident; taken once.
    unsafe { vcpu.saved() }.begin();
    frame.clear();
    frame.set(0, start.context);
}

unsafe extern "C" {
    fn turnstile_enter(frame: u64) -> !;
    fn turnstile_enter_timed(frame: u64) -> !;
}

/// Runs `vcpu` on this CPU, for ever.
pub fn run(vcpu: &'static Vcpu) -> ! {
    in_gic_of!(vcpu.vm.vgic.model(), run_with(vcpu))
}

fn run_with<G: Gic>(vcpu: &'static Vcpu) -> ! {
    let frame = cpu::this().stack_top as *mut Frame;
    vcpu.attention.load(cpu::this().kick_token());
    use_vectors::<G>(vcpu.statistics.is_some());
    #[cfg(feature = "ablation")]
    crate::naive::start_cpu();
    // SAFETY: the frame's memory lies above this CPU's stack, mapped and used by nobody else; TPIDR_EL2 was
    // set at boot. Entering discards the boot-time contents of the stack, which nothing refers to any more.
    unsafe {
        frame.write(Frame::new(vcpu, statistics::page(vcpu)));
        wait_for_start::<G>(&mut *frame, vcpu, vcpu.owned(), monitor());
        while vcpu.attention.is_pending() {
            attend::<G>(&mut *frame, vcpu, vcpu.owned(), monitor());
        }
        if vcpu.statistics.is_some() {
            turnstile_enter_timed(frame as u64)
        }
        turnstile_enter(frame as u64)
    }
}

/// Serves physical interrupts on a CPU to which no vCPU is pinned, for ever.
pub fn idle() -> ! {
    loop {
        wait_for_interrupt();
    }
}

/// Waits until this CPU is interrupted or kicked, and handles that.
pub fn wait_for_interrupt() {
    fn serve<G: Gic>() {
        irq::own::<G>(monitor(), G::acknowledge());
    }
    cpu::wfi();
    in_gic!(serve());
    // Whoever kicked did so to make the caller read memory, which is not ordered behind the acknowledge.
    cpu::isb();
}
