// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The devices that the monitor emulates, at their ports. Interrupt controllers, the 8254 and port 61h are KVM's.
//!
//! The clock and ACPI's timer are read, but raise no interrupts: no thread waits for their time.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use turnstile_devices::{AcpiPm, Cmos, FwCfg, ResetPorts, Uart16550};
use turnstile_machine::pc::{ACPI_PM, COM1, DEBUG_EXIT, split};

/// The last ports of COM1 and of ACPI.
const COM1_LAST: u16 = COM1 + 7;
const ACPI_PM_LAST: u16 = ACPI_PM + AcpiPm::PORTS - 1;

/// What a write to a port means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Nothing beyond the device.
    Nothing,
    /// A byte goes out on the serial line.
    Sent(u8),
    /// The machine is switched off.
    Off,
    /// The machine is reset.
    Reset,
}

/// The devices of one guest.
#[derive(Debug)]
pub struct Ports {
    uart: Uart16550,
    power: AcpiPm,
    cmos: Cmos,
    fw_cfg: FwCfg,
    reset: ResetPorts,
    started: Instant,
}

impl Ports {
    /// Makes the devices of a machine with so many bytes of memory and vCPUs, in their reset state.
    pub fn new(memory: u64, vcpus: u16) -> Self {
        let [low, high] = split(memory);
        Ports {
            uart: Uart16550::new(),
            power: AcpiPm::new(),
            cmos: Cmos::new(low, high),
            fw_cfg: FwCfg::new(memory, vcpus),
            reset: ResetPorts::new(),
            started: Instant::now(),
        }
    }

    /// Reads into `data`, which is as long as the access. Where there is no device, a PC's bus reads as ones.
    pub fn read(&mut self, port: u16, data: &mut [u8]) {
        let size = data.len() as u8;
        let value = match port {
            COM1..=COM1_LAST => self.uart.read((port - COM1).into(), size) as u32,
            ACPI_PM..=ACPI_PM_LAST => {
                self.power.read(port - ACPI_PM, size, nanoseconds(self.started.elapsed()))
            }
            Cmos::INDEX | Cmos::DATA => self.cmos.read(port, time_of_day()).into(),
            FwCfg::SELECTOR | FwCfg::DATA => self.fw_cfg.read(port).into(),
            port if ResetPorts::has(port) => self.reset.read(port).into(),
            _ => u32::MAX,
        };
        for (byte, of_value) in data.iter_mut().zip(value.to_le_bytes()) {
            *byte = of_value;
        }
    }

    /// Writes the bytes of one access. Where there is no device, nothing happens.
    pub fn write(&mut self, port: u16, data: &[u8]) -> Meaning {
        let size = data.len() as u8;
        let value = data.iter().rev().fold(0, |value: u32, byte| value << 8 | u32::from(*byte));
        let byte = value as u8;
        match port {
            COM1..=COM1_LAST => {
                let sent = self.uart.write((port - COM1).into(), size, value.into());
                return sent.map_or(Meaning::Nothing, Meaning::Sent);
            }
            ACPI_PM..=ACPI_PM_LAST => {
                let now = nanoseconds(self.started.elapsed());
                if self.power.write(port - ACPI_PM, size, value, now).is_some() {
                    return Meaning::Off;
                }
            }
            Cmos::INDEX | Cmos::DATA => self.cmos.write(port, byte, time_of_day()),
            FwCfg::SELECTOR | FwCfg::DATA => self.fw_cfg.write(port, value as u16),
            DEBUG_EXIT => return Meaning::Off,
            port if ResetPorts::has(port) && self.reset.write(port, byte).is_some() => return Meaning::Reset,
            _ => {}
        }
        Meaning::Nothing
    }

    /// The level of COM1's interrupt line.
    pub fn interrupt(&self) -> bool {
        self.uart.interrupt()
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Nanoseconds since 1970.
fn time_of_day() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports() -> Ports {
        Ports::new(64 << 20, 1)
    }

    fn read(ports: &mut Ports, port: u16) -> u8 {
        let mut data = [0];
        ports.read(port, &mut data);
        data[0]
    }

    #[test]
    fn what_is_sent_comes_out() {
        let mut ports = ports();
        assert_eq!(ports.write(0x3f8, b"x"), Meaning::Sent(b'x'));
        ports.write(0x3ff, &[0x5a]);
        assert_eq!(read(&mut ports, 0x3ff), 0x5a);
    }

    #[test]
    fn an_empty_bus_reads_as_ones() {
        let mut data = [0; 4];
        ports().read(0x2f8, &mut data);
        assert_eq!(data, [0xff; 4]);
        assert_eq!(ports().write(0x80, &[1]), Meaning::Nothing);
    }

    #[test]
    fn the_machine_can_be_ended() {
        assert_eq!(ports().write(0xf4, &[0]), Meaning::Off);
        // PM1a_CNT with SLP_EN.
        assert_eq!(ports().write(0x604, &[0, 0x20]), Meaning::Off);
        assert_eq!(ports().write(0x604, &[1, 0]), Meaning::Nothing);
        assert_eq!(ports().write(0x64, &[0xfe]), Meaning::Reset);
        assert_eq!(ports().write(0x64, &[0xd1]), Meaning::Nothing);
    }

    #[test]
    fn the_clock_and_the_configuration_answer() {
        let mut ports = ports();
        ports.write(0x70, &[0x32]);
        assert_eq!(read(&mut ports, 0x71), 0x20, "the century");
        ports.write(0x510, &[0, 0]);
        assert_eq!(read(&mut ports, 0x511), b'Q');
    }
}
