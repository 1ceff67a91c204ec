// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A VM's serial port and clock, and what of PCI is no function's: register models of `turnstile_devices` at the addresses of its
//! machine.

use turnstile_devices::{Credit, Pl011, Pl031, Uart16550};
use turnstile_machine::map::{Map, Pci, Region, UartKind};

use crate::alarm;
use crate::arch::time;
use crate::arch::vm::{MESSAGES, Vm};
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
    /// Where the serial port is: in no place if a service is it. Not all of its exits ask services first.
    serial: Region,
    uart: Uart,
    /// What whoever types may send.
    credit: Credit,
    rtc: Pl031,
    /// PCI, if the VM has functions.
    pci: Option<&'static Pci>,
    uart_line: bool,
    rtc_line: bool,
}

impl Devices {
    /// Makes the devices of a VM in their reset state, but for those that services are.
    pub fn new(map: &'static Map, vm: &Vm) -> Self {
        let region = map.uart.region;
        let is_served = vm.services().is_some_and(|services| services.at_address(region.base).is_some());
        let serial = if is_served { Region { size: 0, ..region } } else { region };
        let uart = match map.uart_kind {
            UartKind::Pl011 => Uart::Pl011(Pl011::new()),
            UartKind::Uart16550 => Uart::Uart16550(Uart16550::new()),
        };
        Self {
            map,
            serial,
            uart,
            credit: Credit::new(),
            rtc: Pl031::new(),
            pci: has_functions(vm).then_some(&map.pci),
            uart_line: false,
            rtc_line: false,
        }
    }

    /// Reads a register; `None` if there is no device.
    pub fn read(&mut self, vm: &'static Vm, address: u64, size: u8) -> Option<u64> {
        if self.serial.contains(address) {
            let offset = address - self.serial.base;
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
        let pci = self.pci?;
        if pci.frame.contains(address) {
            return Some(MESSAGES.read(address - pci.frame.base, size));
        }
        is_empty_slot(vm, pci, address).then_some(u64::MAX)
    }

    /// Writes a register; false if there is no device.
    pub fn write(&mut self, vm: &'static Vm, address: u64, size: u8, value: u64) -> bool {
        if self.serial.contains(address) {
            let offset = address - self.serial.base;
            let sent = match &mut self.uart {
                Uart::Pl011(uart) => uart.write(offset, size, value),
                Uart::Uart16550(uart) => uart.write(offset, size, value),
            };
            if let Some(byte) = sent {
                line::console(vm, &[byte]);
            }
        } else if self.map.rtc.region.contains(address) {
            self.rtc.write(time::seconds(), address - self.map.rtc.region.base, size, value);
        } else {
            return self.pci.is_some_and(|pci| write_pci(vm, pci, address, value));
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

/// Says whether a VM has PCI functions.
pub fn has_functions(vm: &Vm) -> bool {
    vm.services().is_some_and(|services| !services.functions.is_empty())
}

/// Writes what of PCI is no function's; false if that is not there.
fn write_pci(vm: &'static Vm, pci: &Pci, address: u64, value: u64) -> bool {
    if pci.frame.contains(address) {
        vm.message(address, value);
        return true;
    }
    is_empty_slot(vm, pci, address)
}

/// Says whether the configuration space of a function is there that is not. Those that are answer themselves: not all exits ask
/// services first.
fn is_empty_slot(vm: &Vm, pci: &Pci, address: u64) -> bool {
    pci.ecam.contains(address) && vm.services().is_some_and(|services| services.at_address(address).is_none())
}
