// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine's PCI configuration space, by configuration mechanism #1 (PCI Local Bus Specification 3.0, section 3.2.2.3.2): an address
//! in one port, data in another. It reaches the first 256 bytes of each function of segment 0.

use pci_types::{ConfigRegionAccess, PciAddress};
use spin::Mutex;
use turnstile_arch_common::pci::CONFIGURATION;

/// Bit 31 of the address: the access is one to a configuration space.
const ENABLE: u32 = 1 << 31;
/// What reads where no function answers.
const ABSENT: u32 = u32::MAX;

/// The two ports belong to one access at a time.
static PORTS: Mutex<()> = Mutex::new(());

/// The configuration space of segment 0.
#[derive(Clone, Copy, Debug)]
pub struct Configuration;

impl Configuration {
    /// Returns it if the machine has one: a host bridge is its own first function.
    pub fn find() -> Option<Self> {
        // SAFETY: the identification of a function, which reading does not change.
        let identification = unsafe { Self.read(PciAddress::new(0, 0, 0, 0), 0) };
        (identification != ABSENT).then_some(Self)
    }
}

/// Returns what an access writes to the port of the address. `None` if the mechanism does not reach that far.
fn named(function: PciAddress, offset: u16) -> Option<u32> {
    let inside = function.segment() == 0 && usize::from(offset) < CONFIGURATION;
    let device = u32::from(function.device()) << 11 | u32::from(function.function()) << 8;
    inside.then(|| ENABLE | u32::from(function.bus()) << 16 | device | u32::from(offset) & 0xfc)
}

impl ConfigRegionAccess for Configuration {
    unsafe fn read(&self, function: PciAddress, offset: u16) -> u32 {
        let Some(address) = named(function, offset) else { return ABSENT };
        let _alone = PORTS.lock();
        port::write_address(address);
        // SAFETY: the caller answers for what it reads.
        unsafe { port::read_data() }
    }

    unsafe fn write(&self, function: PciAddress, offset: u16, value: u32) {
        let Some(address) = named(function, offset) else { return };
        let _alone = PORTS.lock();
        port::write_address(address);
        // SAFETY: the caller answers for what it writes.
        unsafe { port::write_data(value) }
    }
}

/// The ports.
#[cfg(target_os = "none")]
mod port {
    use turnstile_pci::address::ConfigPorts;

    use crate::cpu::ports;

    pub(super) fn write_address(address: u32) {
        // SAFETY: no guest has the machine's port; it does nothing but name what the other one accesses, and reads as ones where there
        // is none.
        unsafe { ports::write32(ConfigPorts::ADDRESS, address) }
    }

    /// # Safety
    /// The register that is named has only the effect that the caller means.
    pub(super) unsafe fn read_data() -> u32 {
        // SAFETY: the caller's promise.
        unsafe { ports::read32(ConfigPorts::DATA) }
    }

    /// # Safety
    /// As for [`read_data`]; what the function does to memory then is the caller's affair.
    pub(super) unsafe fn write_data(value: u32) {
        // SAFETY: the caller's promise.
        unsafe { ports::write32(ConfigPorts::DATA, value) }
    }
}

/// The same on the host.
#[cfg(not(target_os = "none"))]
mod port {
    use crate::cpu::regs::fakes;

    pub(super) fn write_address(address: u32) {
        fakes::write("CONFIG_ADDRESS", address.into());
    }

    pub(super) unsafe fn read_data() -> u32 {
        fakes::read("CONFIG_DATA") as u32
    }

    pub(super) unsafe fn write_data(value: u32) {
        fakes::write("CONFIG_DATA", value.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::regs::fakes::{self, Access};

    #[test]
    fn an_access_names_the_function_and_then_the_data() {
        fakes::reset();
        fakes::set("CONFIG_DATA", 0x1041_1af4);
        let function = PciAddress::new(0, 0x12, 0x1f, 7);
        // SAFETY: fakes.
        unsafe {
            assert_eq!(Configuration.read(function, 0xfc), 0x1041_1af4);
            Configuration.write(function, 0x04, 0x0010_0006);
        }
        assert_eq!(
            fakes::take_log(),
            [
                Access::Write("CONFIG_ADDRESS", 0x8012_fffc),
                Access::Read("CONFIG_DATA"),
                Access::Write("CONFIG_ADDRESS", 0x8012_ff04),
                Access::Write("CONFIG_DATA", 0x0010_0006),
            ]
        );
    }

    #[test]
    fn what_the_mechanism_does_not_reach_is_not_accessed() {
        fakes::reset();
        let near = PciAddress::new(0, 0, 2, 0);
        for (function, offset) in [(near, 0x100), (near, 0xfffc), (PciAddress::new(1, 0, 2, 0), 0)] {
            // SAFETY: fakes.
            unsafe {
                assert_eq!(Configuration.read(function, offset), u32::MAX);
                Configuration.write(function, offset, 0);
            }
        }
        assert_eq!(fakes::take_log(), []);
    }

    #[test]
    fn a_machine_without_a_host_bridge_has_none() {
        fakes::reset();
        fakes::set("CONFIG_DATA", u32::MAX.into());
        assert!(Configuration::find().is_none());
        fakes::set("CONFIG_DATA", 0x29c0_8086);
        assert!(Configuration::find().is_some());
        assert_eq!(
            fakes::take_log()[2..],
            [Access::Write("CONFIG_ADDRESS", 0x8000_0000), Access::Read("CONFIG_DATA")],
            "one access"
        );
    }
}
