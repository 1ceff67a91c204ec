// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The devices that the monitor emulates, at the addresses of the machine. The interrupt controller and the
//! timers are KVM's.

use std::time::{SystemTime, UNIX_EPOCH};

use turnstile_devices::{Pl031, Uart16550};
use turnstile_machine::Map;

use crate::doorbell::Doorbell;

/// The devices of one guest.
#[derive(Debug)]
pub struct Bus {
    map: &'static Map,
    uart: Uart16550,
    rtc: Pl031,
    doorbell: Option<Doorbell>,
}

impl Bus {
    /// Makes the devices of a machine, whose UART is a 16550, in their reset state.
    pub fn new(map: &'static Map, doorbell: Option<Doorbell>) -> Self {
        Bus { map, uart: Uart16550::new(), rtc: Pl031::new(), doorbell }
    }

    /// The level of the UART's interrupt line.
    pub fn interrupt(&self) -> bool {
        self.uart.interrupt()
    }

    /// Reads into `data`, which is as long as the access; zero where there is no device, as with QEMU.
    pub fn read(&mut self, address: u64, data: &mut [u8]) {
        let Bus { map, uart, rtc, doorbell } = self;
        let size = data.len() as u8;
        let value = if map.uart.region.contains(address) {
            uart.read(address - map.uart.region.base, size)
        } else if map.rtc.region.contains(address) {
            rtc.read(seconds(), address - map.rtc.region.base, size)
        } else {
            doorbell.as_ref().and_then(|doorbell| doorbell.read(address)).unwrap_or(0)
        };
        for (byte, of_value) in data.iter_mut().zip(value.to_le_bytes()) {
            *byte = of_value;
        }
    }

    /// Writes `data`, nowhere if there is no device; returns the byte that went out on the serial line.
    pub fn write(&mut self, address: u64, data: &[u8]) -> Option<u8> {
        let Bus { map, uart, rtc, .. } = self;
        let mut bytes = [0; 8];
        for (byte, written) in bytes.iter_mut().zip(data) {
            *byte = *written;
        }
        let (size, value) = (data.len() as u8, u64::from_le_bytes(bytes));
        if map.uart.region.contains(address) {
            return uart.write(address - map.uart.region.base, size, value);
        }
        if map.rtc.region.contains(address) {
            rtc.write(seconds(), address - map.rtc.region.base, size, value);
        }
        None
    }
}

fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arm64::MACHINE;

    const UART: u64 = 0x0100_0000;
    const RTC: u64 = 0x0101_0000;

    #[test]
    fn the_scratch_register_keeps_its_byte() {
        let mut bus = Bus::new(MACHINE.map(), None);
        assert_eq!(bus.write(UART + 7, &[0x5a]), None);
        let mut data = [0xff];
        bus.read(UART + 7, &mut data);
        assert_eq!(data, [0x5a]);
    }

    #[test]
    fn the_uart_interrupts_who_asks_for_it() {
        let mut bus = Bus::new(MACHINE.map(), None);
        assert!(!bus.interrupt());
        // IER: the transmitter is empty.
        assert_eq!(bus.write(UART + 1, &[2]), None);
        assert!(bus.interrupt());
    }

    #[test]
    fn what_is_sent_comes_out() {
        let mut bus = Bus::new(MACHINE.map(), None);
        assert_eq!(bus.write(UART, b"x"), Some(b'x'));
    }

    #[test]
    fn the_clock_runs_by_the_hosts() {
        let mut bus = Bus::new(MACHINE.map(), None);
        let mut data = [0; 4];
        bus.read(RTC, &mut data);
        assert!(u64::from(u32::from_le_bytes(data)).abs_diff(seconds() & 0xffff_ffff) <= 1);
    }

    #[test]
    fn elsewhere_there_is_nothing() {
        let mut bus = Bus::new(MACHINE.map(), None);
        for address in [0, UART - 1, UART + 8, RTC + 0x1000, 0x3fff_0000] {
            assert_eq!(bus.write(address, b"x"), None);
            let mut data = [0xff; 4];
            bus.read(address, &mut data);
            assert_eq!(data, [0; 4]);
        }
    }
}
