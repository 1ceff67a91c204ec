// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Configuration space and interrupts of a bridge whose registers, and those of the distributor, are memory of the test.

use std::vec::Vec;

use super::*;
use crate::board::discover::pci::tests::virt;
use crate::board::discover::{GicNode, V3Node};
use crate::cpu::regs::fakes;
use crate::exit::tests::cpu_area;

/// The first of three buses.
const FIRST: u8 = 4;
const CPUS: usize = 2;

const GICD_TYPER: usize = 0x4;
const GICD_ISENABLER: usize = 0x100;
const GICD_ICENABLER: usize = 0x180;
const GICD_IPRIORITYR: usize = 0x400;
const GICD_ICFGR: usize = 0xc00;
const GICD_IROUTER: usize = 0x6000;

/// Registers that are memory.
fn registers(bytes: usize, value: u64) -> Registers {
    let base = vec![value; bytes / 8].leak().as_mut_ptr().expose_provenance();
    // SAFETY: memory of that size, for ever, that nobody else has.
    unsafe { Registers::new(base as u64) }
}

struct Machine {
    distributor: Registers,
    configuration: Registers,
    bridge: Bridge,
}

/// A machine with 64 SPIs and nothing in its slots.
fn machine() -> Machine {
    let (distributor, configuration) = (registers(0x1_0000, 0), registers(3 << 20, !0));
    distributor.write32(GICD_TYPER, 2);
    let range = Range { base: distributor.base(), size: 0x1_0000 };
    let node =
        V3Node { distributor: range, redistributors: [].into_iter().collect(), virtual_interface: None };
    // SAFETY: memory of the size of a distributor, for ever.
    let controller = Box::leak(Box::new(unsafe { Controller::start(GicNode::V3(node)) }));
    let cpus: Vec<&'static PerCpu> = (0..CPUS).map(cpu_area).collect();
    let node = virt(configuration.base(), [FIRST.into(), u32::from(FIRST) + 2]);
    // What starting it has written is not remembered as in hardware.
    (0..0x100).for_each(|word| distributor.write32(GICD_ISENABLER + 4 * word, 0));
    // SAFETY: memory of the size of three buses, for ever.
    let bridge = unsafe { Bridge::new(node, controller, cpus.leak(), &[]) };
    Machine { distributor, configuration, bridge }
}

impl Machine {
    /// Puts registers of a function, the fourth and the seventh, where there is none.
    fn put(&self, bus: u8, device: usize, function: usize, header: u32, buses: [u8; 3]) {
        let place = usize::from(bus - FIRST) << 20 | device << 15 | function << 12;
        let [primary, secondary, subordinate] = buses;
        self.configuration.write32(place + 0x0c, header << 16);
        self.configuration.write32(place + 0x18, u32::from_le_bytes([primary, secondary, subordinate, 0]));
    }

    /// Has a pin of a function interrupt a CPU.
    fn connect(&self, bus: u8, device: u8, pin: u8, cpu: usize) -> Option<u32> {
        self.bridge.connect(PciAddress::new(0, bus, device, 0), Wiring::Pin(pin), cpu)
    }
}

#[test]
fn each_function_has_its_page_of_configuration_space() {
    let machine = machine();
    let address = |bus| PciAddress::new(0, bus, 3, 2);
    let place = 1 << 20 | 3 << 15 | 2 << 12;
    // SAFETY: memory of the test.
    unsafe {
        machine.configuration.write32(place + 0xffc, 0x1234_5678);
        assert_eq!(machine.bridge.read(address(FIRST + 1), 0xffc), 0x1234_5678);
        fakes::take_instructions();
        machine.bridge.write(address(FIRST + 1), 0x10, 0xc000_0000);
        assert_eq!(fakes::take_instructions(), ["dsb sy"], "what is decoded then is another peripheral");
        assert_eq!(machine.configuration.read32(place + 0x10), 0xc000_0000);
        for bus in [FIRST - 1, FIRST + 3] {
            machine.bridge.write(address(bus), 0, 0);
            assert_eq!(machine.bridge.read(address(bus), 0), !0, "no such bus");
        }
    }
}

#[test]
fn a_pin_is_connected_once_to_the_cpu_that_is_named_and_masked() {
    let machine = machine();
    let distributor = machine.distributor;
    // Other interrupts in the same register, and this one as firmware may have left it.
    distributor.write32(GICD_ICFGR + 8, 0xffff_ffff);
    let number = machine.connect(FIRST, 2, 1, 1).unwrap();
    assert_eq!(number, 32 + 5);
    assert_eq!(distributor.read64(GICD_IROUTER + 8 * 37), 1);
    assert_eq!(distributor.read8(GICD_IPRIORITYR + 37), 0x80);
    assert_eq!(
        distributor.read32(GICD_ICFGR + 8),
        !(3 << 10) | 1 << 10,
        "level, and nothing else has changed"
    );
    assert_eq!(distributor.read32(GICD_ISENABLER + 4), 0);
    assert_eq!(machine.connect(FIRST, 2, 1, 0), None, "it is somebody's");
    assert_eq!(machine.connect(FIRST, 6, 1, 0), None, "the same interrupt of another slot");
    assert_eq!(machine.connect(FIRST, 2, 4, 0), Some(32 + 4));
    assert_eq!(distributor.read32(GICD_ICFGR + 8) >> 8 & 3, 3, "an edge");
}

#[test]
fn what_cannot_be_connected_is_not() {
    let machine = machine();
    assert_eq!(machine.connect(FIRST, 0, 1, CPUS), None, "no such CPU");
    assert_eq!(machine.connect(FIRST, 0, 0, 0), None, "no pin");
    let messages = Wiring::Messages { table: 0, vectors: 1 };
    assert_eq!(machine.bridge.connect(PciAddress::new(0, FIRST, 0, 0), messages, 0), None);
    // As many interrupts as there are private ones.
    machine.distributor.write32(GICD_TYPER, 0);
    assert_eq!(machine.connect(FIRST, 0, 1, 0), None);
    assert_eq!(machine.distributor.read8(GICD_IPRIORITYR + 35), 0, "nothing was written");
}

#[test]
fn an_interrupt_is_masked_at_the_distributor() {
    let machine = machine();
    let number = machine.connect(FIRST, 0, 1, 0).unwrap();
    fakes::take_instructions();
    machine.bridge.mask(number, false);
    assert_eq!(fakes::take_instructions(), ["dsb sy"], "the line has fallen before");
    assert_eq!(machine.distributor.read32(GICD_ISENABLER + 4), 1 << 3);
    machine.bridge.mask(number, true);
    assert_eq!(machine.distributor.read32(GICD_ICENABLER + 4), 1 << 3);
}

#[test]
fn pins_behind_bridges_come_out_turned() {
    let machine = machine();
    // Two bridges, one behind the other: slot 2 function 1 of the first bus, slot 3 of the second.
    machine.put(FIRST, 2, 0, 0x80, [0; 3]);
    machine.put(FIRST, 2, 1, 0x01, [FIRST, FIRST + 1, FIRST + 2]);
    machine.put(FIRST + 1, 3, 0, 0x01, [FIRST + 1, FIRST + 2, FIRST + 2]);
    // INTA of slot 1 of the last bus: INTB of slot 3, INTA of slot 2.
    assert_eq!(machine.connect(FIRST + 2, 1, 1, 0), Some(32 + 5));
    // INTA of slot 0 of the second bus: INTA of slot 2, which is taken. INTB: the next one.
    assert_eq!(machine.connect(FIRST + 1, 0, 1, 0), None);
    assert_eq!(machine.connect(FIRST + 1, 0, 2, 0), Some(32 + 6));
    assert_eq!(machine.connect(FIRST + 2, 1, 0, 0), None, "no pin");
    // A bridge that leads back, or that nobody has set up, leads nowhere.
    machine.put(FIRST, 2, 1, 0x01, [FIRST, FIRST, FIRST + 2]);
    assert_eq!(machine.connect(FIRST + 2, 1, 2, 0), None);
    machine.put(FIRST, 2, 1, 0x01, [0; 3]);
    assert_eq!(machine.connect(FIRST + 1, 0, 3, 0), None);
}

#[test]
fn without_an_iommu_nothing_guards_memory() {
    let memory = Range { base: 0x4020_1000, size: 0x1000 };
    let reach = machine().bridge.reach(PciAddress::new(0, FIRST, 2, 0), memory, false);
    assert_eq!(reach, Some(Reach { bus: 0x4020_1000, guarded: false }));
}
