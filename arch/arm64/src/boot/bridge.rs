// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A PCI host bridge of the machine: its configuration space, and the pins by which its functions interrupt.

use alloc::vec::Vec;

use pci_types::ConfigRegionAccess;
use turnstile_arch_common::mmio::Registers;
use turnstile_arch_common::pci::{Fault, HostBridge, PciAddress, Range, Reach, Unlent, Wiring};

use super::iommu::Iommu;
use crate::board::discover::pci::PciNode;
use crate::cpu::{self, PerCpu};
use crate::irq::controller::Controller;

/// The register that says what kind of header a function has (PCI Local Bus Specification 3.0, section 6.2.1).
const HEADER: u16 = 0x0c;
/// The register of the buses of a bridge (PCI-to-PCI Bridge Architecture Specification 1.2, section 3.2).
const BUSES: u16 = 0x18;

/// A PCI host bridge.
pub struct Bridge {
    node: PciNode,
    configuration: Registers,
    controller: &'static Controller,
    cpus: &'static [&'static PerCpu],
    /// The machine's IOMMUs.
    iommus: &'static [Iommu],
}

/// A function by bus, device and function.
type Function = (u8, u8, u8);

impl Bridge {
    /// Makes one whose functions interrupt these CPUs, and are behind some of these IOMMUs.
    ///
    /// # Safety
    /// The node's configuration space must be mapped as device memory for ever.
    pub unsafe fn new(
        node: PciNode,
        controller: &'static Controller,
        cpus: &'static [&'static PerCpu],
        iommus: &'static [Iommu],
    ) -> Self {
        // SAFETY: the caller's promise.
        let configuration = unsafe { Registers::new(node.configuration.base) };
        Self { node, configuration, controller, cpus, iommus }
    }

    /// Returns where a register of a function is in the configuration space.
    fn place(&self, (bus, device, function): Function, offset: u16) -> Option<usize> {
        let place = self.node.function(bus, device, function)? + u64::from(offset & 0xffc);
        usize::try_from(place).ok()
    }

    fn get(&self, function: Function, offset: u16) -> u32 {
        // As where there is no function.
        self.place(function, offset).map_or(!0, |place| self.configuration.read32(place))
    }

    /// Returns the functions on a bus.
    fn functions(&self, bus: u8) -> impl Iterator<Item = Function> {
        (0..32).flat_map(move |device| {
            let first = self.get((bus, device, 0), HEADER);
            let count = match first {
                u32::MAX => 0,
                _ if first >> 23 & 1 != 0 => 8,
                _ => 1,
            };
            (0..count).map(move |function| (bus, device, function))
        })
    }

    /// Returns the bridge whose secondary bus this is.
    fn above(&self, bus: u8) -> Option<Function> {
        let mut upper = self.node.buses.0;
        loop {
            // Buses behind a bridge have higher numbers than the one in front of it.
            let (bridge, secondary) = self.functions(upper).find_map(|function| {
                let [_, secondary, subordinate, _] = self.get(function, BUSES).to_le_bytes();
                let is_bridge = self.get(function, HEADER) >> 16 & 0x7f == 1;
                let leads = is_bridge && upper < secondary && (secondary..=subordinate).contains(&bus);
                leads.then_some((function, secondary))
            })?;
            if secondary == bus {
                return Some(bridge);
            }
            upper = secondary;
        }
    }

    /// Returns the function on the first bus, and the pin there, as which a pin of a function gets out: each bridge turns the pins of
    /// devices on its secondary bus (PCI-to-PCI Bridge Architecture Specification 1.2, section 9.1).
    fn outside(&self, mut function: Function, mut pin: u8) -> Option<(Function, u8)> {
        while function.0 != self.node.buses.0 {
            pin = (pin.checked_sub(1)? + function.1) % 4 + 1;
            function = self.above(function.0)?;
        }
        Some((function, pin))
    }

    /// Returns the IOMMU that a function is behind, and which stream of that it is.
    fn before(&self, address: PciAddress) -> Option<(&'static Iommu, u32)> {
        let (bus, device, number) = function(address);
        let (phandle, stream) = self.node.stream(bus, device, number)?;
        let iommu = self.iommus.iter().find(|iommu| iommu.phandle() == phandle)?;
        Some((iommu, stream))
    }

    /// Returns the IOMMUs that its functions are behind.
    fn iommus(&self) -> impl Iterator<Item = &'static Iommu> {
        self.iommus.iter().filter(|iommu| self.node.streams(iommu.phandle()) != 0)
    }
}

/// What of an address counts: there is one segment.
fn function(address: PciAddress) -> Function {
    (address.bus(), address.device(), address.function())
}

/// Maps a register of a function.
///
/// # Safety
/// It is in a BAR that the function decodes.
unsafe fn registers(address: u64) -> Option<Registers> {
    // On the host it is memory of a test.
    #[cfg(target_os = "none")]
    crate::memory::host::map_registers(Range { base: address, size: 4 }).ok()?;
    // SAFETY: just mapped, for ever; the caller's promise.
    Some(unsafe { Registers::new(address) })
}

impl ConfigRegionAccess for Bridge {
    unsafe fn read(&self, address: PciAddress, offset: u16) -> u32 {
        self.get(function(address), offset)
    }

    unsafe fn write(&self, address: PciAddress, offset: u16, value: u32) {
        if let Some(place) = self.place(function(address), offset) {
            self.configuration.write32(place, value);
            // Before accesses of what the function decodes from now on: those are of another peripheral.
            cpu::dsb_sy();
        }
    }
}

impl HostBridge for Bridge {
    fn buses(&self) -> (u8, u8) {
        self.node.buses
    }

    fn room(&self) -> Option<(u64, u64)> {
        self.node.room()
    }

    fn physical(&self, bus: u64) -> Option<u64> {
        self.node.physical(bus)
    }

    unsafe fn load(&self, address: u64) -> Option<u32> {
        // SAFETY: the caller's promise.
        unsafe { registers(address) }.map(|register| register.read32(0))
    }

    unsafe fn store(&self, address: u64, value: u32) -> Option<()> {
        // SAFETY: the caller's promise. Accesses of one peripheral arrive in their order (Arm ARM B2.3.7).
        unsafe { registers(address) }.map(|register| register.write32(0, value))
    }

    fn reach(&self, address: PciAddress, memory: Range, _: bool) -> Option<Reach> {
        let bus = self.node.reach_all(memory)?;
        let Some((iommu, stream)) = self.before(address) else { return Some(Reach { bus, guarded: false }) };
        iommu.reach(address, stream, memory).then_some(Reach { bus, guarded: true })
    }

    fn lend(&self, address: PciAddress, pieces: &[Range]) -> Result<Vec<u64>, Unlent> {
        let (iommu, stream) = self.before(address).ok_or(Unlent::NoTables)?;
        let buses: Option<_> = pieces.iter().map(|piece| self.node.reach_all(*piece)).collect();
        let buses = buses.ok_or(Unlent::NoTables)?;
        iommu.lend(stream, pieces).map(|()| buses)
    }

    fn take_back(&self, address: PciAddress) -> bool {
        self.before(address).is_none_or(|(iommu, stream)| iommu.take_back(stream))
    }

    fn watch(&self, cpu: usize) -> Option<u32> {
        let cpu = self.cpus.get(cpu)?;
        self.iommus().fold(None, |found, iommu| iommu.watch(cpu).or(found))
    }

    fn faults(&self, take: &mut dyn FnMut(Fault)) {
        self.iommus().for_each(|iommu| iommu.faults(take));
    }

    fn takes_messages(&self) -> bool {
        false
    }

    fn connect(&self, address: PciAddress, wiring: Wiring, cpu: usize) -> Option<u32> {
        let Wiring::Pin(pin) = wiring else { return None };
        let cpu = self.cpus.get(cpu)?;
        let ((_, device, number), pin) = self.outside(function(address), pin)?;
        let spi = self.node.interrupt(device, number, pin)?;
        self.controller.connect_spi(spi, cpu.affinity, cpu.kick_token()).then_some(spi.intid)
    }

    fn mask(&self, number: u32, masked: bool) {
        self.controller.mask_spi(number, masked);
    }
}

#[cfg(test)]
mod tests;
