// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls that the full tier carries out: the models of `core/papr` on this machine.

use turnstile_papr::code::Code;
use turnstile_papr::mode::{self, Mode};
use turnstile_papr::processors::Processors;
use turnstile_papr::rtas::{self, Services, Then, pci};
use turnstile_papr::{page_init, process_table, terminal};
use turnstile_service::abi::{BARS, CONFIGURATION, Event, Kind, member_device, split_device};
use turnstile_vm::attention::Reasons;
use turnstile_vm::lifecycle::Stop;

use super::crash::Crash;
use super::inside::access_seldom;
use crate::board::mitigation;
use crate::cpu;
use crate::cpu::regs::lpcr;
use crate::vcpu::facility;
use crate::vcpu::frame::Frame;
use crate::vm::monitor::Monitor;
use crate::vm::{Vcpu, Vm};

type Arguments = [u64; 7];

/// H_REGISTER_VPA: for the caller itself, as operating systems do.
pub(super) fn register_vpa(vcpu: &'static Vcpu, [flags, server, address, ..]: Arguments) -> Code {
    if server != vcpu.index as u64 {
        return Code::PARAMETER;
    }
    vcpu.owned(|owned| {
        let code = owned.areas.call(flags, address, vcpu.vm);
        for area in [owned.areas.vpa, owned.areas.shadow, owned.areas.log].into_iter().flatten() {
            // Whoever takes the vCPU's CPU writes there, in a pause of the VM, too.
            vcpu.vm.life().ram.pin(area.address, area.size);
        }
        code
    })
}

/// Says whether a call names memory for which a pool has no block: it is carried out again, later.
pub(super) fn is_dry<const COUNT: usize>(vcpu: &Vcpu, named: [(u64, u64); COUNT]) -> bool {
    /// The highest four bits of an address say nothing.
    const ADDRESS: u64 = (1 << 60) - 1;
    let ram = &vcpu.vm.life().ram;
    ram.pooled().is_some() && named.iter().any(|(address, size)| ram.is_dry(address & ADDRESS, *size))
}

/// H_SET_MODE.
pub(super) fn set_mode(vcpu: &'static Vcpu, [flags, resource, first, second, ..]: Arguments) -> Code {
    match mode::set([flags, resource, first, second], cpu::is_isa_3_1()) {
        Ok(Mode::Ciabr(address)) => facility::set_modes(vcpu, |modes| modes.ciabr = address),
        Ok(Mode::Dawr { address, control }) => facility::set_modes(vcpu, |modes| {
            (modes.dawr, modes.dawrx) = (address, control);
        }),
        Ok(Mode::InterruptLocation(location)) => {
            let value = u64::from(location) << lpcr::AIL.trailing_zeros();
            set_lpcr(vcpu, lpcr::AIL, value);
        }
        Ok(Mode::LittleEndianInterrupts(on)) => set_lpcr(vcpu, lpcr::ILE, if on { lpcr::ILE } else { 0 }),
        Err(code) => return code,
    }
    Code::SUCCESS
}

/// Changes what a partition has the same on all vCPUs. The others follow before they run on.
fn set_lpcr(vcpu: &'static Vcpu, mask: u64, value: u64) {
    vcpu.vm.set_lpcr(mask, value);
    facility::set_modes(vcpu, |_| {});
    for other in vcpu.vm.vcpus().iter().filter(|other| other.index != vcpu.index) {
        other.post(Reasons::REMOTE);
    }
}

/// H_REGISTER_PROC_TBL.
pub(super) fn register_process_table(vcpu: &'static Vcpu, [flags, base, page, size, ..]: Arguments) -> Code {
    match process_table::register([flags, base, page, size]) {
        Ok(registration) => {
            if let Some(entry) = registration.entry {
                vcpu.vm.set_process_table(entry);
            }
            Code::SUCCESS
        }
        Err(code) => code,
    }
}

/// H_PUT_TERM_CHAR.
pub(super) fn put_characters(
    vcpu: &'static Vcpu,
    [unit, count, high, low, ..]: Arguments,
    monitor: &dyn Monitor,
) -> Code {
    match terminal::put([unit, count, high, low]) {
        Ok((characters, count)) => {
            monitor.terminal_write(vcpu.vm, &characters[..count]);
            Code::SUCCESS
        }
        Err(code) => code,
    }
}

/// H_GET_TERM_CHAR.
pub(super) fn get_characters(
    frame: &mut Frame,
    vcpu: &'static Vcpu,
    [unit, ..]: Arguments,
    monitor: &dyn Monitor,
) -> Code {
    if let Err(code) = terminal::get(unit) {
        return code;
    }
    let mut characters = [0; terminal::MOST];
    let count = monitor.terminal_read(vcpu.vm, &mut characters).min(characters.len());
    for (register, value) in (4..).zip(terminal::typed(&characters[..count])) {
        frame.set_gpr(register, value);
    }
    Code::SUCCESS
}

/// H_PAGE_INIT.
#[inline(never)] // Not part of what other calls pay.
pub(super) fn initialize_page(vcpu: &'static Vcpu, [flags, to, from, ..]: Arguments) -> Code {
    match page_init::initialize([flags, to, from], vcpu.vm) {
        Ok(executed) => {
            if executed {
                cpu::synchronize_code();
            }
            Code::SUCCESS
        }
        Err(code) => code,
    }
}

/// H_RANDOM.
pub(super) fn random(frame: &mut Frame) -> Code {
    let Some(number) = cpu::random() else { return Code::HARDWARE };
    frame.set_gpr(4, number);
    Code::SUCCESS
}

/// H_GET_CPU_CHARACTERISTICS.
pub(super) fn characteristics(frame: &mut Frame) -> Code {
    let told = mitigation::characteristics();
    frame.set_gpr(4, told.character);
    frame.set_gpr(5, told.behaviour);
    Code::SUCCESS
}

/// H_SIGNAL_SYS_RESET: one vCPU, all, or all but the caller (LoPAPR 14.5.4.8).
pub(super) fn signal_reset(vcpu: &'static Vcpu, [target, ..]: Arguments) -> Code {
    const ALL: u64 = -1i64 as u64;
    const OTHERS: u64 = -2i64 as u64;
    let named = |other: &Vcpu| match target {
        ALL => true,
        OTHERS => other.index != vcpu.index,
        number => other.index as u64 == number,
    };
    let mut any = matches!(target, ALL | OTHERS);
    for other in vcpu.vm.vcpus().iter().filter(|other| named(other)) {
        any = true;
        if vcpu.vm.processors.is_on(other.index) {
            other.post(Reasons::NMI);
        }
    }
    if any { Code::SUCCESS } else { Code::PARAMETER }
}

/// The firmware's functions. Returns what comes then.
pub(super) fn firmware(
    frame: &mut Frame,
    vcpu: &'static Vcpu,
    [block, ..]: Arguments,
    monitor: &dyn Monitor,
) -> u32 {
    let mut services = Platform { vcpu, vm: vcpu.vm, monitor };
    let (code, then) = rtas::call(vcpu.index, block, vcpu.vm, &mut services);
    frame.set_gpr(3, code.value());
    match then {
        Then::Continue => {}
        Then::Started(number) => {
            if let Some(other) = vcpu.vm.vcpu(number) {
                other.post(Reasons::START);
            }
        }
        // It looks at its state before it goes on, and finds that it is not on.
        Then::Stopped => vcpu.attention.raise(Reasons::START),
        Then::PowerOff => vcpu.vm.stop(Stop::PowerOff),
        Then::Reboot => vcpu.vm.stop(Stop::Reset),
        Then::Terminated => vcpu.vm.stop(Stop::Crash(Crash::Terminated as u16)),
    }
    0
}

/// What the firmware's functions need.
struct Platform<'a> {
    vcpu: &'static Vcpu,
    vm: &'static Vm,
    monitor: &'a dyn Monitor,
}

impl Services for Platform<'_> {
    fn processors(&self) -> &Processors {
        &self.vm.processors
    }

    fn stopping(&mut self) {
        self.vcpu.forget();
    }

    fn memory_size(&self) -> u64 {
        self.vm.life().ram.size()
    }

    fn clock(&self) -> u64 {
        self.monitor.clock(self.vm)
    }

    fn set_clock(&mut self, nanoseconds: u64) {
        self.monitor.set_clock(self.vm, nanoseconds);
    }

    fn display(&mut self, character: u8) {
        self.monitor.terminal_write(self.vm, &[character]);
    }

    fn route(&self, source: u32) -> Option<(u32, u8)> {
        self.vm.board.ics()?.route(source)
    }

    fn set_route(&mut self, source: u32, server: u32, priority: u8) -> bool {
        self.vm.board.ics().is_some_and(|ics| ics.set_route(source, server, priority, self.vm))
    }

    fn set_masked(&mut self, source: u32, masked: bool) -> bool {
        self.vm.board.ics().is_some_and(|ics| ics.set_masked(source, masked, self.vm))
    }
}

impl Platform<'_> {
    /// Hands an access to the function in a slot. Returns what it answers; `None` if there is none.
    #[cold]
    #[inline(never)] // Guests without such functions are not to pay for it.
    fn function(&mut self, kind: Kind, slot: u64, [device, offset, size, value]: [u64; 4]) -> Option<u64> {
        let served = self.vm.services()?.function(slot)?;
        // Of the member that this VM is to the service, as the function itself.
        let device = member_device(split_device(served.device).0, device);
        Some(access_seldom(self.vcpu, served, &Event::new(kind, [device, offset, size, value, 0])))
    }
}

impl pci::Functions for Platform<'_> {
    fn read(&mut self, slot: u64, offset: u32, size: u32) -> Option<u32> {
        let place = [CONFIGURATION, offset.into(), size.into(), 0];
        let value = self.function(Kind::Read, slot, place)?;
        // No more than was asked for.
        Some(value as u32 & u32::MAX >> (32 - 8 * size.clamp(1, 4)))
    }

    fn write(&mut self, slot: u64, offset: u32, size: u32, value: u32) -> Option<()> {
        let place = [CONFIGURATION, offset.into(), size.into(), value.into()];
        self.function(Kind::Write, slot, place).map(drop)
    }

    fn write_bar(&mut self, slot: u64, bar: u32, offset: u32, value: u32) {
        self.function(Kind::Write, slot, [BARS + u64::from(bar), offset.into(), 4, value.into()]);
    }

    fn give(&mut self, slot: u64, count: u32) -> u32 {
        self.vm.board.give(slot, count)
    }

    fn source(&self, slot: u64, number: u32) -> Option<u32> {
        self.vm.board.pci_source(slot, number)
    }
}
