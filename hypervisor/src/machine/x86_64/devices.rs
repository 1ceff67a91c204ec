// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The devices of a PC that exits do not handle themselves: register models of `turnstile_devices` at their ports.

use turnstile_bundle::TripleFault;
use turnstile_devices::{AcpiPm, Cmos, Credit, FwCfg, Reset, ResetPorts, Uart16550};
use turnstile_machine::pc;
use turnstile_vm::lifecycle::{Phase, Stop};

use crate::alarm;
use crate::arch::exit::crash::Crash;
use crate::arch::time;
use crate::arch::vm::Vm;
use crate::arch::vm::ports::Ports;
use crate::line;

/// The ports of a 16550.
pub(super) const UART_PORTS: u16 = 8;
/// What is read where nothing answers.
const ABSENT: u64 = u64::MAX;

/// The ports of [`Devices`]: there is none elsewhere.
pub(super) static PORTS: Ports = Ports::of(&OWN);
/// The same, and those of PCI's configuration spaces, which exits serve.
pub(super) static PORTS_AND_PCI: Ports = PORTS.and(pc::PCI_PORTS, 8);
const OWN: [(u16, u16); 10] = [
    (pc::COM1, UART_PORTS),
    (Cmos::INDEX, 1),
    (Cmos::DATA, 1),
    (FwCfg::SELECTOR, 1),
    (FwCfg::DATA, 1),
    (pc::ACPI_PM, AcpiPm::PORTS),
    (ResetPorts::KEYBOARD, 1),
    (ResetPorts::FAST, 1),
    (ResetPorts::CONTROL, 1),
    (pc::DEBUG_EXIT, 1),
];

/// The crash code of a write to the debug exit port, without what was written.
const DEBUG_EXIT: u16 = 0x100;
/// The crash code of a warm reset.
pub(super) const PANIC: u16 = 0x200;
/// Where a PC's firmware finds out whether a reset is a warm one, and what says so.
const RESET_FLAG: u64 = 0x472;
const WARM: u16 = 0x1234;

/// The devices of one VM.
pub struct Devices {
    uart: Uart16550,
    /// What whoever types may send.
    credit: Credit,
    clock: Cmos,
    power: AcpiPm,
    firmware: FwCfg,
    reset: ResetPorts,
    /// What a shutdown of a processor is.
    triple_fault: TripleFault,
    /// The levels of the interrupt lines as the board knows them.
    lines: Lines,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Lines {
    uart: bool,
    clock: bool,
    power: bool,
}

impl Devices {
    /// Makes the devices of a machine with so much memory, in bytes, and so many vCPUs, in their reset state.
    pub fn new(memory: u64, vcpus: usize, triple_fault: TripleFault) -> Self {
        let [low, high] = pc::split(memory);
        Self {
            uart: Uart16550::new(),
            credit: Credit::new(),
            clock: Cmos::new(low, high),
            power: AcpiPm::new(),
            firmware: FwCfg::new(memory, vcpus as u16),
            reset: ResetPorts::new(),
            triple_fault,
            lines: Lines::default(),
        }
    }

    /// Reads `size` bytes of a register in memory: no device of a PC that is not handled by exits has any.
    pub fn read(&mut self, _: &'static Vm, _: u64, _: u8) -> Option<u64> {
        None
    }

    /// Writes a register in memory.
    pub fn write(&mut self, _: &'static Vm, _: u64, _: u8, _: u64) -> bool {
        false
    }

    /// Reads `size` bytes of a port; `None` if there is no device.
    pub fn port_read(&mut self, vm: &'static Vm, port: u16, size: u8) -> Option<u64> {
        if !PORTS.has(port) {
            return None;
        }
        let value = match port {
            _ if is_uart(port) => {
                let value = self.uart.read(u64::from(port - pc::COM1), size);
                line::room(vm, self.credit.freed(self.uart.waiting()));
                value
            }
            Cmos::INDEX | Cmos::DATA => self.clock.read(port, time::wall_nanoseconds()).into(),
            FwCfg::SELECTOR | FwCfg::DATA => self.firmware.read(port).into(),
            _ if is_power(port) => self.power.read(port - pc::ACPI_PM, size, vm.nanoseconds()).into(),
            _ if ResetPorts::has(port) => self.reset.read(port).into(),
            pc::DEBUG_EXIT => ABSENT,
            _ => return None,
        };
        self.update(vm);
        Some(value)
    }

    /// vCPU `index` writes a port; false if there is no device.
    pub fn port_write(&mut self, vm: &'static Vm, index: usize, port: u16, size: u8, value: u64) -> bool {
        if !PORTS.has(port) {
            return false;
        }
        match port {
            _ if is_uart(port) => {
                if let Some(byte) = self.uart.write(u64::from(port - pc::COM1), size, value) {
                    line::console(vm, &[byte]);
                }
            }
            Cmos::INDEX | Cmos::DATA => self.clock.write(port, value as u8, time::wall_nanoseconds()),
            FwCfg::SELECTOR | FwCfg::DATA => self.firmware.write(port, value as u16),
            _ if is_power(port) => {
                let offset = port - pc::ACPI_PM;
                if self.power.write(offset, size, value as u32, vm.nanoseconds()).is_some() {
                    vm.stop(Stop::PowerOff);
                }
            }
            _ if ResetPorts::has(port) => {
                let begins = match self.reset.write(port, value as u8) {
                    Some(Reset::Processors) => vm.reset_by(index, || self.resumes()),
                    Some(Reset::Machine) => true,
                    None => false,
                };
                if begins {
                    let is_warm = vm.read_word(RESET_FLAG) == Some(WARM);
                    vm.stop(if is_warm { Stop::Crash(PANIC) } else { Stop::Reset });
                }
            }
            pc::DEBUG_EXIT => vm.stop(match value & 0xff {
                0 => Stop::PowerOff,
                code => Stop::Crash(DEBUG_EXIT | code as u16),
            }),
            _ => return false,
        }
        self.update(vm);
        true
    }

    /// The first vCPU has got an INIT, alone or with the others: does what the firmware does with the shutdown code, and says
    /// whether the vCPU goes on where the guest wants it.
    pub fn resumes(&mut self) -> bool {
        self.clock.take_resume()
    }

    /// Processor `index` has shut down: the chip set resets all of them. Where the firmware would begin from the beginning, so does
    /// the VM, or has crashed.
    pub fn shut_down(&mut self, vm: &'static Vm, index: usize) {
        if !vm.reset_by(index, || self.resumes()) {
            return;
        }
        match self.triple_fault {
            TripleFault::Crash => vm.stop(Stop::Crash(Crash::Shutdown as u16)),
            TripleFault::Reset => {
                // Of several processors that shut down, the first resets the machine.
                if vm.lifecycle.phase() == Phase::Running {
                    line::crash(
                        vm,
                        format_args!("a processor has shut down (a triple fault), which is a reset"),
                    );
                }
                vm.stop(Stop::Reset);
            }
        }
    }

    /// Takes what was typed into the VM's console. Bytes for which there was no room are lost, as on a real line.
    pub fn receive(&mut self, vm: &'static Vm, bytes: &[u8]) {
        for byte in bytes {
            let _ = self.uart.receive(*byte);
        }
        self.credit.arrived(bytes.len());
        // Not on a CPU of the VM: its own will ring for the others.
        self.set_lines(vm, vm.nanoseconds(), time::wall_nanoseconds());
    }

    /// Gives back the room of what was typed and not read: the VM has stopped.
    pub fn drop_typed(&mut self, vm: &'static Vm) {
        line::room(vm, self.credit.freed(0));
    }

    /// Returns how many bytes may be typed if none are under way.
    pub fn room(&self) -> u16 {
        self.credit.room()
    }

    /// Lets time go on: interrupts that are due are raised.
    pub fn tick(&mut self, vm: &'static Vm) {
        self.update(vm);
    }

    /// Brings the interrupt lines in accord with the devices, and lets this CPU ring when one may rise by itself.
    fn update(&mut self, vm: &'static Vm) {
        let (now, wall) = (vm.nanoseconds(), time::wall_nanoseconds());
        self.set_lines(vm, now, wall);
        let clock = self.clock.deadline(wall).map(|at| at.saturating_sub(wall));
        let power = self.power.deadline(now).map(|at| at.saturating_sub(now));
        if let Some(nanoseconds) = [clock, power].into_iter().flatten().min() {
            alarm::set(vm.id, time::after(nanoseconds));
        }
    }

    /// Brings the interrupt lines in accord with the devices, at a time since power-on and a time of day.
    fn set_lines(&mut self, vm: &'static Vm, now: u64, wall: u64) {
        self.power.advance(now);
        self.clock.advance(wall);
        let lines = Lines {
            uart: self.uart.interrupt(),
            clock: self.clock.interrupt(),
            power: self.power.interrupt(),
        };
        let changes = [
            (pc::COM1_IRQ, self.lines.uart, lines.uart),
            (pc::CMOS_IRQ, self.lines.clock, lines.clock),
            (pc::SCI_IRQ, self.lines.power, lines.power),
        ];
        self.lines = lines;
        for (irq, _, level) in changes.into_iter().filter(|(_, before, now)| before != now) {
            vm.set_irq(irq, level);
        }
    }
}

fn is_uart(port: u16) -> bool {
    (pc::COM1..pc::COM1 + UART_PORTS).contains(&port)
}

fn is_power(port: u16) -> bool {
    (pc::ACPI_PM..pc::ACPI_PM + AcpiPm::PORTS).contains(&port)
}
