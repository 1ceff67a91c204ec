// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A VM's serial port and clock: register models of `turnstile_devices` at the addresses of its machine.

use turnstile_devices::{Credit, Pl011, Pl031, Uart16550};
use turnstile_machine::map::{Map, UartKind};

use crate::alarm;
use crate::arch::time;
use crate::arch::vm::Vm;
use crate::line;

/// The register with the received byte: DR of a PL011, RBR of a 16550.
const RECEIVED: u64 = 0;

enum Uart {
    Pl011(Pl011),
    Uart16550(Uart16550),
}

/// The devices of one VM.
pub struct Devices {
    map: &'static Map,
    uart: Uart,
    /// What whoever types may send.
    credit: Credit,
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
        Self { map, uart, credit: Credit::new(), rtc: Pl031::new(), uart_line: false, rtc_line: false }
    }

    /// Reads a register; `None` if there is no device.
    pub fn read(&mut self, vm: &'static Vm, address: u64, size: u8) -> Option<u64> {
        if self.map.uart.region.contains(address) {
            let offset = address - self.map.uart.region.base;
            let value = match &mut self.uart {
                _ if offset == RECEIVED => self.read_received(vm, size),
                Uart::Pl011(uart) => uart.read(offset, size),
                Uart::Uart16550(uart) => uart.read(offset, size),
            };
            self.set_uart_line(vm);
            return Some(value);
        }
        if self.map.rtc.region.contains(address) {
            let value = self.rtc.read(time::seconds(), address - self.map.rtc.region.base, size);
            self.update(vm);
            return Some(value);
        }
        None
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

    /// Takes what was typed into the VM's console. Bytes for which there was no room are lost, as on a real line.
    pub fn receive(&mut self, vm: &'static Vm, bytes: &[u8]) {
        for byte in bytes {
            let _ = match &mut self.uart {
                Uart::Pl011(uart) => uart.receive(*byte),
                Uart::Uart16550(uart) => uart.receive(*byte),
            };
        }
        self.credit.arrived(bytes.len());
        // Not on a CPU of the VM: its own will ring for the clock.
        self.set_lines(vm);
    }

    /// Gives back the room of what was typed and not read: the VM has stopped.
    pub fn drop_typed(&mut self, vm: &'static Vm) {
        line::room(vm, self.credit.freed(0));
    }

    /// Returns how many bytes may be typed if none are under way.
    pub fn room(&self) -> u16 {
        self.credit.room()
    }

    /// Reads a received byte, and says how much room the guest has made by that.
    #[inline(never)] // As for `line::console`.
    fn read_received(&mut self, vm: &'static Vm, size: u8) -> u64 {
        let (value, waiting) = match &mut self.uart {
            Uart::Pl011(uart) => (uart.read(RECEIVED, size), uart.waiting()),
            Uart::Uart16550(uart) => (uart.read(RECEIVED, size), uart.waiting()),
        };
        line::room(vm, self.credit.freed(waiting));
        value
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
        self.set_uart_line(vm);
        let rtc = self.rtc.interrupt();
        if rtc != self.rtc_line {
            self.rtc_line = rtc;
            vm.set_spi_line(self.map.rtc.intid, rtc);
        }
    }

    /// The same for the serial port alone: what happens to it changes nothing of the clock.
    fn set_uart_line(&mut self, vm: &'static Vm) {
        let uart = match &self.uart {
            Uart::Pl011(uart) => uart.interrupt(),
            Uart::Uart16550(uart) => uart.interrupt(),
        };
        if uart != self.uart_line {
            self.uart_line = uart;
            vm.set_spi_line(self.map.uart.intid, uart);
        }
    }
}
