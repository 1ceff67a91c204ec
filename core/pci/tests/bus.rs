// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The bus: by ports and ECAM, as Linux looks for devices, and as another project's code does.

mod common;

use common::{device, identity};
use pci_types::capability::PciCapability;
use pci_types::{ConfigRegionAccess, EndpointHeader, HeaderType, PciAddress, PciHeader};
use proptest::prelude::*;
use std::cell::RefCell;
use turnstile_pci::absent;
use turnstile_pci::address::{Address, ConfigPorts, ecam};
use turnstile_pci::bar::{Bar, Space};
use turnstile_pci::bus::{Bus, Place};
use turnstile_pci::function::Function;

fn bus() -> Bus<4> {
    let mut bus = Bus::new(Function::new(&identity(0x0008, 0x06_0000)));
    assert_eq!(bus.add(device()), Some(1));
    let mut other = Function::new(&identity(0x1042, 0x01_8000));
    other.add_bar(4, Bar::Memory64 { size: 1 << 32, prefetchable: true }).unwrap();
    assert_eq!(bus.add(other), Some(2));
    bus
}

fn at(device: u8) -> Address {
    Address::new(0, device, 0).unwrap()
}

#[test]
fn a_function_has_one_name() {
    assert_eq!(Address::new(0, 32, 0), None);
    assert_eq!(Address::new(0, 0, 8), None);
    let address = Address::new(0x12, 0x1f, 7).unwrap();
    assert_eq!((address.bus(), address.device(), address.function()), (0x12, 0x1f, 7));
    assert_eq!(Address::from_requester(address.requester()), address);
    assert_eq!(format!("{address:?}"), "12:1f.7");
    assert_eq!(ecam(0x12f_fabc), Some((address, 0xabc)));
    assert_eq!(ecam(256 << 20), None);
}

#[test]
fn ports_lead_where_ecam_does() {
    let mut ports = ConfigPorts::new();
    assert_eq!(ports.target(0xcfc, 4), None, "nothing is enabled after a reset");
    // Linux asks so whether there is mechanism #1 (pci_check_type1): the byte at 0xcfb is another register.
    assert!(!ports.write(0xcfb, 1, 1));
    assert!(ports.write(0xcf8, 4, 0x8000_0000));
    assert_eq!(ports.read(0xcf8, 4), Some(0x8000_0000));
    assert!(!ports.write(0xcf9, 1, 6), "the reset register of a PC");
    assert_eq!((ports.read(0xcf9, 1), ports.read(0xcf8, 1), ports.read(0xcfc, 4)), (None, None, None));
    ports.write(0xcf8, 4, 0xff12_ffff);
    assert_eq!(ports.read(0xcf8, 4), Some(0x8012_fffc));
    assert_eq!(ports.target(0xcfe, 2), ecam(0x12f_f0fe));
    assert_eq!((ports.target(0xcfd, 4), ports.target(0xd00, 1), ports.target(0xcfb, 1)), (None, None, None));
    ports.write(0xcf8, 4, 0x0012_fffc);
    assert_eq!(ports.target(0xcfc, 4), None);
}

#[test]
fn a_bus_has_places_for_so_many() {
    let mut bus = bus();
    assert_eq!(bus.add(device()), Some(3));
    assert_eq!(bus.add(device()), None);
    assert!(bus.function(4).is_none() && bus.function_mut(255).is_none());
}

#[test]
fn addresses_lead_to_devices() {
    let mut bus = bus();
    bus.function_mut(1).unwrap().place(3, 0x1000_0000);
    bus.function_mut(2).unwrap().place(4, 0x1_0000_0000);
    assert_eq!(bus.find(Space::Memory, 0x1000_0010), None);
    for device in 0..4 {
        bus.write(at(device), 4, 2, 7);
    }
    assert_eq!(bus.find(Space::Memory, 0x1000_0010), Some(Place { device: 1, bar: 3, offset: 0x10 }));
    assert_eq!(
        bus.find(Space::Memory, 0x1_ffff_ffff),
        Some(Place { device: 2, bar: 4, offset: 0xffff_ffff })
    );
    assert_eq!(bus.find(Space::Io, 0x1000_0010), None);
    bus.reset();
    assert_eq!(bus.find(Space::Memory, 0x1000_0010), None);
    assert_eq!(bus.read(at(1), 0x1c, 4), 0);
}

/// The steps of Linux (`drivers/pci/probe.c`: pci_scan_slot, pci_setup_device, __pci_read_base, pci_cfg_space_size_ext;
/// `drivers/pci/pci.c`: __pci_find_next_cap_ttl).
#[test]
fn linux_finds_the_devices_and_their_capabilities() {
    let mut bus = bus();
    let mut found = Vec::new();
    for bus_number in [0, 1, 255] {
        for device in 0..32 {
            for function in 0..8 {
                let address = Address::new(bus_number, device, function).unwrap();
                let id = bus.read(address, 0, 4);
                if id == 0xffff_ffff {
                    continue;
                }
                assert_eq!(bus.read(address, 0x0e, 1), 0, "one function, type 0");
                found.push((bus_number, device, function, id >> 16, bus.read(address, 8, 4) >> 8));
            }
        }
    }
    let expected = [(0, 0, 0, 0x0008, 0x06_0000), (0, 1, 0, 0x1041, 0x02_0000), (0, 2, 0, 0x1042, 0x01_8000)];
    assert_eq!(found, expected);
    // No list of extended capabilities, and none in the bridge.
    assert_eq!(bus.read(at(0), 0x100, 4), 0);
    assert_eq!((bus.read(at(0), 6, 2) & 0x10, bus.read(at(1), 6, 2) & 0x10), (0, 0x10));
    let mut position = bus.read(at(1), 0x34, 1) as u16;
    let mut list = Vec::new();
    while position >= 0x40 && list.len() < 48 {
        let header = bus.read(at(1), position & !3, 2);
        list.push((position, header & 0xff));
        position = (header >> 8) as u16;
    }
    assert_eq!((list, position), (vec![(0x40, 9), (0x4c, 0x11)], 0));
    // Sizes are asked for with decoding off, and addresses written back.
    bus.write(at(1), 4, 2, 3);
    let command = bus.read(at(1), 4, 2);
    bus.write(at(1), 4, 2, command & !3);
    let original = bus.read(at(1), 0x1c, 4);
    bus.write(at(1), 0x1c, 4, 0xffff_ffff);
    assert_eq!(!(bus.read(at(1), 0x1c, 4) & !0xf) + 1, 0x1000);
    bus.write(at(1), 0x1c, 4, original);
    bus.write(at(1), 4, 2, command);
    assert_eq!((bus.read(at(1), 0x1c, 4), bus.read(at(1), 4, 2)), (original, command));
    // All errors are cleared with a write of ones.
    bus.write(at(1), 6, 2, 0xffff);
    assert_eq!(bus.read(at(1), 6, 2), 0x10);
}

/// The bus as another project's code wants it.
struct Access(RefCell<Bus<4>>);

fn address(of: PciAddress) -> Address {
    Address::new(of.bus(), of.device(), of.function()).unwrap()
}

impl ConfigRegionAccess for Access {
    unsafe fn read(&self, of: PciAddress, offset: u16) -> u32 {
        self.0.borrow().read(address(of), offset, 4)
    }

    unsafe fn write(&self, of: PciAddress, offset: u16, value: u32) {
        self.0.borrow_mut().write(address(of), offset, 4, value);
    }
}

/// The crate `pci_types` reads headers, sizes and capabilities by the same specification.
#[test]
fn another_reader_of_the_specification_agrees() {
    let access = &Access(RefCell::new(bus()));
    access.0.borrow_mut().function_mut(1).unwrap().place(0, 0x80_0000_0000);
    let header = PciHeader::new(PciAddress::new(0, 0, 1, 0));
    assert_eq!(header.id(access), (0x1af4, 0x1041));
    assert_eq!(header.revision_and_class(access), (1, 2, 0, 0));
    assert_eq!(
        (header.header_type(access), header.has_multiple_functions(access)),
        (HeaderType::Endpoint, false)
    );
    let mut endpoint = EndpointHeader::from_header(header, access).unwrap();
    assert_eq!(endpoint.subsystem(access), (0x1100, 0x1af5));
    assert_eq!(endpoint.interrupt(access), (1, 0));
    let bars: Vec<_> = (0..6).map(|slot| format!("{:?}", endpoint.bar(slot, access))).collect();
    let expected = [
        Some(pci_types::Bar::Memory64 { address: 0x80_0000_0000, size: 0x4000, prefetchable: true }),
        Some(pci_types::Bar::Io { port: 0 }),
        Some(pci_types::Bar::Memory32 { address: 0, size: 0x1000, prefetchable: false }),
        None,
    ];
    // The upper half of a wide one is none.
    for (slot, bar) in [0, 2, 3, 4].into_iter().zip(expected) {
        assert_eq!(bars[slot], format!("{bar:?}"), "{slot}");
    }
    let capabilities: Vec<_> = endpoint.capabilities(access).collect();
    let [PciCapability::Vendor(_), PciCapability::MsiX(mut msix)] = capabilities[..] else { panic!() };
    assert_eq!((msix.table_size(), msix.table_bar(), msix.table_offset()), (33, 3, 0));
    assert_eq!((msix.pba_bar(), msix.pba_offset()), (3, 0x800));
    msix.set_enabled(true, access);
    endpoint.update_command(access, |_| pci_types::CommandRegister::BUS_MASTER_ENABLE);
    let control = access.0.borrow().function(1).unwrap().msix();
    assert!(control.enabled && !control.masked);
    // SAFETY: a register of a model.
    unsafe { endpoint.write_bar(3, access, 0xe000_0000).unwrap() };
    assert_eq!(access.0.borrow().function(1).unwrap().base(3), Some(0xe000_0000));
}

proptest! {
    /// Any access by ECAM or ports is answered, and reaches the device that it names alone.
    #[test]
    fn accesses_reach_what_they_name(offset in 0u64..1 << 28, near: bool, size in 0u8..9, value: u32, latch: u32, port: u16) {
        let mut bus = bus();
        let offset = if near { offset % (4 << 15) } else { offset };
        let (address, register) = ecam(offset).unwrap();
        let others: Vec<u8> = (0..4).filter(|&device| address != at(device)).collect();
        let before: Vec<u32> = others.iter().flat_map(|&device| (0..64).map(move |word| (device, word)))
            .map(|(device, word)| bus.read(at(device), 4 * word, 4)).collect();
        let written = bus.write(address, register, size, value);
        prop_assert_eq!(written.is_some(), (0..3).any(|device| address == at(device)));
        if written.is_none() {
            prop_assert_eq!(bus.read(address, register, size), absent(size));
        }
        let after: Vec<u32> = others.iter().flat_map(|&device| (0..64).map(move |word| (device, word)))
            .map(|(device, word)| bus.read(at(device), 4 * word, 4)).collect();
        prop_assert_eq!(before, after);
        let mut ports = ConfigPorts::new();
        ports.write(0xcf8, 4, latch);
        let port = if near { 0xcf0 + port % 32 } else { port };
        ports.write(port, size, value);
        ports.read(port, size);
        if let Some((address, register)) = ports.target(port, size) {
            prop_assert!(register < 256);
            bus.read(address, register, size);
        }
    }
}
