// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A VM's serial port and clock: register models of `turnstile_devices` at the addresses of its machine.

use turnstile_devices::{Pl011, Pl031, Uart16550};
use turnstile_machine::map::{Map, UartKind};

use crate::alarm;
use crate::arch::time;
use crate::arch::vm::Vm;
use crate::line;

enum Uart {
    Pl011(Pl011),
    Uart16550(Uart16550),
}

/// The devices of one VM.
pub struct Devices {
    map: &'static Map,
    uart: Uart,
    rtc: Pl031,
    uart_line: bool,
    rtc_line: bool,
}

impl Devices {
    /// Makes the devices of a machine in their reset state.
    pub fn new(map: &'static Map) -> Self {
        let uart = match map.uart_kind {
            UartKind::Pl011 => Uart::Pl011(Pl011::new()),
            UartKind::Uart16550 => Uart::Uart16550(Uart16550::new()),
        };
        Self { map, uart, rtc: Pl031::new(), uart_line: false, rtc_line: false }
    }

    /// Reads a register; `None` if there is no device.
    pub fn read(&mut self, vm: &'static Vm, address: u64, size: u8) -> Option<u64> {
        let value = if self.map.uart.region.contains(address) {
            let offset = address - self.map.uart.region.base;
            match &mut self.uart {
                Uart::Pl011(uart) => uart.read(offset, size),
                Uart::Uart16550(uart) => uart.read(offset, size),
            }
        } else if self.map.rtc.region.contains(address) {
            self.rtc.read(time::seconds(), address - self.map.rtc.region.base, size)
        } else {
            return None;
        };
        self.update(vm);
        Some(value)
    }

    /// Writes a register; false if there is no device.
    pub fn write(&mut self, vm: &'static Vm, address: u64, size: u8, value: u64) -> bool {
        if self.map.uart.region.contains(address) {
            let offset = address - self.map.uart.region.base;
            let sent = match &mut self.uart {
                Uart::Pl011(uart) => uart.write(offset, size, value),
                Uart::Uart16550(uart) => uart.write(offset, size, value),
            };
            if let Some(byte) = sent {
                line::console(vm, byte);
            }
        } else if self.map.rtc.region.contains(address) {
            self.rtc.write(time::seconds(), address - self.map.rtc.region.base, size, value);
        } else {
            return false;
        }
        self.update(vm);
        true
    }

    /// Takes what was typed into the VM's console. Bytes that find no room are lost, as on a real line.
    pub fn receive(&mut self, vm: &'static Vm, bytes: &[u8]) {
        for byte in bytes {
            let _ = match &mut self.uart {
                Uart::Pl011(uart) => uart.receive(*byte),
                Uart::Uart16550(uart) => uart.receive(*byte),
            };
        }
        // Not on a CPU of the VM: its own will ring for the clock.
        self.set_lines(vm);
    }

    /// Lets the clock's alarm go off if it is due.
    pub fn tick(&mut self, vm: &'static Vm) {
        self.rtc.advance(time::seconds());
        self.update(vm);
    }

    /// Brings the interrupt lines in accord with the devices, and lets this CPU ring when the clock's may rise by itself.
    fn update(&mut self, vm: &'static Vm) {
        self.set_lines(vm);
        if self.rtc.is_armed()
            && let Some(seconds) = self.rtc.deadline(time::seconds())
        {
            alarm::set(vm.id, time::after(seconds));
        }
    }

    /// Brings the interrupt lines in accord with the devices.
    fn set_lines(&mut self, vm: &'static Vm) {
        let uart = match &self.uart {
            Uart::Pl011(uart) => uart.interrupt(),
            Uart::Uart16550(uart) => uart.interrupt(),
        };
        if uart != self.uart_line {
            self.uart_line = uart;
            vm.set_spi_line(self.map.uart.intid, uart);
        }
        let rtc = self.rtc.interrupt();
        if rtc != self.rtc_line {
            self.rtc_line = rtc;
            vm.set_spi_line(self.map.rtc.intid, rtc);
        }
    }
}
