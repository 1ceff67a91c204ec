// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine's host bridge: that of PCI segment 0, and all buses behind it.

use alloc::vec::Vec;

use pci_types::capability::PciCapability;
use pci_types::{ConfigRegionAccess, EndpointHeader, PciHeader};
use turnstile_arch_common::mmio::Registers;
use turnstile_arch_common::pci::{
    CONFIGURATION, Fault, HostBridge, PciAddress, Range, Reach, Unlent, Wiring,
};

use super::iommu::Iommu;
use crate::board::pci::Configuration;
use crate::cpu::PerCpu;
use crate::irq::messages;

/// The host bridge.
pub struct Bridge {
    configuration: Configuration,
    /// The CPUs, by their indices.
    cpus: &'static [&'static PerCpu],
    /// Bits of a physical address.
    physical_bits: u32,
    /// The machine's IOMMUs, if it has such.
    iommu: Option<Iommu>,
}

impl Bridge {
    /// Returns that of the machine, if it has one.
    pub fn find(cpus: &'static [&'static PerCpu], physical_bits: u32, iommu: Option<Iommu>) -> Option<Self> {
        Some(Self { configuration: Configuration::find()?, cpus, physical_bits, iommu })
    }

    /// Returns the IOMMUs if a function is behind them.
    fn before(&self, function: PciAddress) -> Option<&Iommu> {
        self.iommu.as_ref().filter(|iommu| iommu.is_before(function))
    }

    /// Has an IOMMU send this message when it has something to say. False if it sends none.
    fn announce(&self, iommu: PciAddress, (address, data): (u64, u32)) -> bool {
        let Some(header) = EndpointHeader::from_header(PciHeader::new(iommu), self) else { return false };
        // A list that does not end is no list.
        let mut all = header.capabilities(self).take(CONFIGURATION / 4);
        let Some(PciCapability::Msi(message)) = all.find(|one| matches!(one, PciCapability::Msi(_))) else {
            return false;
        };
        message.set_message_info(address, data, self);
        message.set_enabled(true, self);
        true
    }
}

impl ConfigRegionAccess for Bridge {
    unsafe fn read(&self, function: PciAddress, offset: u16) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { self.configuration.read(function, offset) }
    }

    unsafe fn write(&self, function: PciAddress, offset: u16, value: u32) {
        // SAFETY: the caller's promise.
        unsafe { self.configuration.write(function, offset, value) }
    }
}

impl HostBridge for Bridge {
    fn buses(&self) -> (u8, u8) {
        (0, u8::MAX)
    }

    /// The firmware of a PC has placed all.
    fn room(&self) -> Option<(u64, u64)> {
        None
    }

    /// An address is the same on both sides of a PC's host bridge.
    fn physical(&self, bus: u64) -> Option<u64> {
        (bus >> self.physical_bits == 0).then_some(bus)
    }

    unsafe fn load(&self, address: u64) -> Option<u32> {
        messages::map(address, 4)?;
        // SAFETY: just mapped, for ever; the caller's promise.
        Some(unsafe { Registers::new(address) }.read32(0))
    }

    unsafe fn store(&self, address: u64, value: u32) -> Option<()> {
        messages::map(address, 4)?;
        // SAFETY: as with `load`. Accesses to uncacheable memory are done in their order (APM vol. 2, 7.4).
        unsafe { Registers::new(address) }.write32(0, value);
        Some(())
    }

    fn reach(&self, function: PciAddress, memory: Range, _: bool) -> Option<Reach> {
        let iommu = self.before(function);
        let is_possible = iommu.is_none_or(|iommu| iommu.reach(function, memory));
        is_possible.then_some(Reach { bus: memory.base, guarded: iommu.is_some() })
    }

    fn lend(&self, function: PciAddress, pieces: &[Range]) -> Result<Vec<u64>, Unlent> {
        let iommu = self.before(function).ok_or(Unlent::NoTables)?;
        iommu.lend(function, pieces)?;
        Ok(pieces.iter().map(|piece| piece.base).collect())
    }

    fn take_back(&self, function: PciAddress) -> bool {
        self.before(function).is_none_or(|iommu| iommu.take_back(function))
    }

    fn watch(&self, cpu: usize) -> Option<u32> {
        let iommus = self.iommu.as_ref()?.functions();
        let (vector, address, data) = messages::single(self.cpus.get(cpu)?.apic_id)?;
        let announced = iommus.filter(|iommu| self.announce(*iommu, (address, data))).count();
        (announced != 0).then_some(vector.into())
    }

    fn faults(&self, take: &mut dyn FnMut(Fault)) {
        if let Some(iommu) = &self.iommu {
            iommu.faults(take);
        }
    }

    fn takes_messages(&self) -> bool {
        true
    }

    /// Not by pins: where these lead, only code of the firmware says (ACPI 6.5, 6.2.13).
    fn connect(&self, function: PciAddress, wiring: Wiring, cpu: usize) -> Option<u32> {
        let Wiring::Messages { table, vectors } = wiring else { return None };
        let apic_id = self.cpus.get(cpu)?.apic_id;
        let data = |vector: u8, destination| match self.before(function) {
            Some(iommu) => iommu.message(function, vector, destination),
            None => Some(vector.into()),
        };
        // SAFETY: the table is the function's, and as large as that says.
        unsafe { messages::connect(table, vectors, apic_id, data) }.map(u32::from)
    }

    fn mask(&self, number: u32, masked: bool) {
        if let Ok(vector) = u8::try_from(number) {
            messages::mask(vector, masked);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::regs::fakes;

    /// A bridge to CPUs with these identifications.
    fn bridge_to(apic_ids: impl Iterator<Item = u32>) -> Option<Bridge> {
        let cpus = apic_ids.map(|id| &*Box::leak(Box::new(PerCpu::new(0, 0, 0, 0, id))));
        Bridge::find(Vec::leak(cpus.collect()), 40, None)
    }

    fn bridge() -> Bridge {
        bridge_to([3].into_iter()).unwrap()
    }

    fn function() -> PciAddress {
        PciAddress::new(0, 0, 2, 0)
    }

    #[test]
    fn a_bridge_is_there_if_it_answers() {
        fakes::reset();
        fakes::set("CONFIG_DATA", u32::MAX.into());
        assert!(bridge_to([3].into_iter()).is_none());
        fakes::set("CONFIG_DATA", 0x1237_8086);
        let bridge = bridge();
        // SAFETY: fakes.
        unsafe {
            assert_eq!(bridge.read(function(), 0x10), 0x1237_8086);
            bridge.write(function(), 0x14, 0x1234);
        }
        assert_eq!((fakes::get("CONFIG_ADDRESS"), fakes::get("CONFIG_DATA")), (0x8000_1014, 0x1234));
    }

    #[test]
    fn addresses_are_those_of_the_cpus() {
        fakes::reset();
        let bridge = bridge();
        assert_eq!(bridge.physical(0xfebd_4000), Some(0xfebd_4000));
        assert_eq!([bridge.physical((1 << 40) - 1), bridge.physical(1 << 40)], [Some((1 << 40) - 1), None]);
        let memory = Range { base: 0x1_2345_6000, size: 0x1000 };
        assert_eq!(
            bridge.reach(function(), memory, false),
            Some(Reach { bus: 0x1_2345_6000, guarded: false })
        );
        assert_eq!((bridge.buses(), bridge.room(), bridge.takes_messages()), ((0, 255), None, true));
    }

    /// A table of four entries, as nobody has set it up.
    const UNSET: [[u32; 4]; 4] = [[0xdead_beef, 0xdead_beef, 0xdead_beef, 0]; 4];

    /// What hardware would read of it.
    fn table(address: u64) -> [[u32; 4]; 4] {
        // SAFETY: what a test has leaked; volatile, because it is written by its address.
        unsafe { (address as *const [[u32; 4]; 4]).read_volatile() }
    }

    /// The only test that takes vectors: others would miss them.
    #[test]
    fn each_function_has_a_vector_and_is_masked() {
        fakes::reset();
        let bridge = bridge_to((0xf7..=0xff).chain([0x100, 0x1f7])).unwrap();
        let tables: Vec<u64> =
            (0..10).map(|_| core::ptr::from_mut(Box::leak(Box::new(UNSET))) as u64).collect();
        let connect = |table, vectors, cpu| {
            bridge.connect(function(), Wiring::Messages { table: tables[table], vectors }, cpu)
        };
        assert_eq!(bridge.connect(function(), Wiring::Pin(1), 0), None);
        for cpu in 8..12 {
            assert_eq!(connect(8, 4, cpu), None, "no message can name it, or it is not there");
        }
        assert_eq!(connect(8, 0, 0), None, "it has no entry");
        assert_eq!(table(tables[8]), UNSET, "who is refused is left alone");
        let unused = [0xdead_beef, 0xdead_beef, 0xdead_beef, 1];
        for (number, at) in (0..8).zip(&tables) {
            let (vector, apic_id) = (0x31 + number as u32, 0xf7 + number as u32);
            assert_eq!(connect(number, 4, number), Some(vector));
            assert_eq!(table(*at), [[0xfee0_0000 | apic_id << 12, 0, vector, 1], unused, unused, unused]);
        }
        assert_eq!(connect(9, 4, 0), None, "all vectors are taken");
        assert_eq!(table(tables[9]), UNSET);
        let masked = || tables[..8].iter().map(|at| table(*at)[0][3]).collect::<Vec<_>>();
        bridge.mask(0x33, false);
        assert_eq!(masked(), [1, 1, 0, 1, 1, 1, 1, 1], "it alone");
        assert_eq!(table(tables[2])[1..], [unused; 3], "its other entries are not used");
        (0..0x31).chain([0x39, 0xef, 0xff, 0x131, u32::MAX]).for_each(|number| bridge.mask(number, false));
        bridge.mask(0x33, true);
        assert_eq!(masked(), [1; 8]);
    }
}
