// SPDX-License-Identifier: Apache-2.0 OR MIT
//! ACPI and MultiProcessor tables, written here by the specifications' offsets.

mod common;

use common::{Ram, bytes};
use proptest::prelude::*;
use turnstile_firmware::{IoApic, Line, Machine, Register, Space, find_rsdp};

const RSDP: u64 = 0xf_5a00;

impl Ram {
    /// Puts bytes whose sum is made zero by the byte at `checksum`.
    fn put_summed(&mut self, address: u64, mut bytes: Vec<u8>, checksum: usize) {
        bytes[checksum] = 0;
        bytes[checksum] = bytes.iter().fold(0u8, |sum, byte| sum.wrapping_sub(*byte));
        self.put(address, &bytes);
    }

    /// Puts an ACPI table.
    fn put_table(&mut self, address: u64, signature: &[u8; 4], body: &[u8]) {
        let mut table = signature.to_vec();
        table.extend((36 + body.len() as u32).to_le_bytes());
        table.resize(36, 0);
        table.extend(body);
        self.put_summed(address, table, 9);
    }

    /// Puts a root pointer and the table it points to.
    fn put_root(&mut self, pointer: u64, root: u64, tables: &[u64], extended: bool) {
        let mut rsdp = b"RSD PTR \0OEMOEM".to_vec();
        rsdp.push(if extended { 2 } else { 0 });
        rsdp.extend(if extended { 0 } else { root as u32 }.to_le_bytes());
        self.put_summed(pointer, rsdp, 8);
        if extended {
            self.put(pointer + 24, &root.to_le_bytes());
        }
        let body: Vec<u8> = tables
            .iter()
            .flat_map(|table| {
                if extended { table.to_le_bytes().to_vec() } else { (*table as u32).to_le_bytes().to_vec() }
            })
            .collect();
        self.put_table(root, if extended { b"XSDT" } else { b"RSDT" }, &body);
    }
}

fn madt() -> Vec<u8> {
    let mut body = bytes(&[(0xfee0_1000, 4), (1, 4)]);
    for (id, flags) in [(0, 1), (1, 1), (2, 0), (3, 2), (1, 1)] {
        body.extend(bytes(&[(0, 1), (8, 1), (id, 1), (id, 1), (flags, 4)]));
    }
    body.extend(bytes(&[(9, 1), (16, 1), (0, 2), (0x1_0005, 4), (1, 4), (7, 4)]));
    body.extend(bytes(&[(1, 1), (12, 1), (4, 1), (0, 1), (0xfec0_0000, 4), (0, 4)]));
    body.extend(bytes(&[(1, 1), (12, 1), (5, 1), (0, 1), (0xfec0_1000, 4), (24, 4)]));
    // ISA interrupt 0 is input 2; 9 is active low and level-triggered.
    body.extend(bytes(&[(2, 1), (10, 1), (0, 1), (0, 1), (2, 4), (0, 2)]));
    body.extend(bytes(&[(2, 1), (10, 1), (0, 1), (9, 1), (9, 4), (0b1111, 2)]));
    body.extend(bytes(&[(5, 1), (12, 1), (0, 2), (0xfee0_2000, 8)]));
    body
}

/// The fixed table, with what `edit` puts at offsets of the whole table.
fn fadt(edit: &[(usize, u64, usize)]) -> Vec<u8> {
    let mut table = vec![0; 268];
    for (at, value, size) in edit {
        table[*at..at + size].copy_from_slice(&value.to_le_bytes()[..*size]);
    }
    table[36..].to_vec()
}

fn pc() -> Ram {
    let mut ram = Ram::new();
    ram.put_root(RSDP, 0x10_0000, &[0xffff_0000, 0x20_0000, 0x30_0000], true);
    ram.put_table(0x20_0000, b"APIC", &madt());
    let fixed = [
        (40, 0x40_0000, 4),
        (64, 0x604, 4),
        (76, 0x608, 4),
        (108, 0x32, 1),
        (112, 1 << 10, 4),
        (116, 1, 1),
        (120, 0xcf9, 8),
        (128, 0xf, 1),
    ];
    ram.put_table(0x30_0000, b"FACP", &fadt(&fixed));
    // Some code, then Name (_S5, Package (4) { 5, 1, 0, 0 }).
    let code = b"\x10\x05\\_S5_garbage\x08_S5_\x12\x08\x04\x0a\x05\x01\x00\x00";
    ram.put_table(0x40_0000, b"DSDT", code);
    ram
}

#[test]
fn the_tables_of_a_pc_are_read() {
    let ram = pc();
    assert_eq!(find_rsdp(&ram), Some(RSDP));
    let machine = Machine::read(&ram, Some(RSDP)).unwrap();
    assert_eq!(machine.cpus.as_slice(), [0, 1, 0x1_0005]);
    let apics =
        [IoApic { id: 4, address: 0xfec0_0000, first: 0 }, IoApic { id: 5, address: 0xfec0_1000, first: 24 }];
    assert_eq!(machine.io_apics.as_slice(), apics);
    assert_eq!(machine.isa[0], Line { number: 2, active_low: false, level: false });
    assert_eq!(machine.isa[4], Line { number: 4, active_low: false, level: false });
    assert_eq!(machine.isa[9], Line { number: 9, active_low: true, level: true });
    assert_eq!(machine.local_apic, 0xfee0_2000);
    assert_eq!(machine.power.pm1, [Some((0x604, 5)), None]);
    assert_eq!(machine.power.timer, Some(0x608));
    assert_eq!(machine.power.century, Some(0x32));
    let reset = Register { space: Space::Io, address: 0xcf9 };
    assert_eq!(machine.power.reset, Some((reset, 0xf)));
    assert_eq!(machine.power.sleep, None);
}

#[test]
fn reduced_hardware_sleeps_by_a_register_in_memory() {
    let mut ram = Ram::new();
    ram.put_root(RSDP, 0x10_0000, &[0x20_0000, 0x30_0000], false);
    ram.put_table(0x20_0000, b"APIC", &madt());
    let edit = [(140, 0x40_0000, 8), (64, 0x604, 4), (112, 1 << 20, 4), (248, 0xfea0_0000, 8)];
    ram.put_table(0x30_0000, b"FACP", &fadt(&edit));
    ram.put_table(0x40_0000, b"DSDT", b"\x08_S5_\x12\x06\x04\x0b\x05\x00\x00");
    let power = Machine::read(&ram, Some(RSDP)).unwrap().power;
    let register = Register { space: Space::Memory, address: 0xfea0_0000 };
    assert_eq!(power.sleep, Some((register, 5)));
    assert_eq!((power.pm1, power.timer), ([None, None], None));
}

#[test]
fn a_wrong_checksum_hides_a_table() {
    let mut ram = pc();
    ram.0[0x20_0030] ^= 1;
    assert!(Machine::read(&ram, Some(RSDP)).is_none(), "the only table that names CPUs is damaged");
    let mut ram = pc();
    ram.0[RSDP as usize + 9] ^= 1;
    assert!(find_rsdp(&ram).is_none());
}

fn multiprocessor(ram: &mut Ram) {
    let pointer = [b"_MP_".to_vec(), bytes(&[(0x9_f000, 4), (1, 1), (4, 1), (0, 1), (0, 5)])].concat();
    ram.put_summed(0xf_1000, pointer, 10);
    let mut table = [b"PCMP".to_vec(), bytes(&[(0, 2), (4, 1), (0, 1)]), vec![0; 28]].concat();
    table.extend(bytes(&[(0xfee0_0000, 4), (0, 4)]));
    for (id, flags) in [(0u64, 3u64), (7, 1), (9, 0)] {
        table.extend(bytes(&[(0, 1), (id, 1), (0x14, 1), (flags, 1), (0, 8), (0, 8)]));
    }
    table.extend(
        [bytes(&[(1, 1), (0, 1)]), b"PCI   ".to_vec(), bytes(&[(1, 1), (1, 1)]), b"ISA   ".to_vec()].concat(),
    );
    table.extend(bytes(&[(2, 1), (2, 1), (0x11, 1), (1, 1), (0xfec0_0000, 4)]));
    // Interrupt 4 of the ISA bus to input 20, active low; interrupt 5 of the other bus is none of it.
    table.extend(bytes(&[(3, 1), (0, 1), (3, 2), (1, 1), (4, 1), (2, 1), (20, 1)]));
    table.extend(bytes(&[(3, 1), (0, 1), (3, 2), (0, 1), (5, 1), (2, 1), (21, 1)]));
    let length = table.len() as u16;
    table[4..6].copy_from_slice(&length.to_le_bytes());
    ram.put_summed(0x9_f000, table, 7);
}

#[test]
fn multiprocessor_tables_stand_in_for_acpi() {
    let mut ram = Ram::new();
    multiprocessor(&mut ram);
    let machine = Machine::read(&ram, None).unwrap();
    assert_eq!(machine.cpus.as_slice(), [0, 7]);
    assert_eq!(machine.io_apics.as_slice(), [IoApic { id: 2, address: 0xfec0_0000, first: 0 }]);
    assert_eq!(machine.isa[4], Line { number: 20, active_low: true, level: false });
    assert_eq!(machine.isa[5], Line { number: 5, active_low: false, level: false });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// Whatever the tables hold, with sums that are right: reading ends, and takes no CPU twice.
    #[test]
    fn damaged_tables_are_read_to_an_end(changes in prop::collection::vec((0..4usize, 0..300usize, any::<u8>()), 0..24)) {
        let mut ram = pc();
        multiprocessor(&mut ram);
        let tables = [(0x10_0000u64, 9, 60usize), (0x20_0000, 9, 36 + madt().len()), (0x30_0000, 9, 268), (0x9_f000, 7, 160)];
        for (table, at, value) in changes {
            let (address, _, length) = tables[table];
            ram.0[address as usize + at % length] = value;
        }
        for (address, checksum, length) in tables {
            let whole = ram.0[address as usize..address as usize + length].to_vec();
            ram.put_summed(address, whole, checksum);
        }
        if let Some(machine) = Machine::read(&ram, Some(RSDP)) {
            let mut ids = machine.cpus.to_vec();
            ids.sort_unstable();
            ids.dedup();
            prop_assert_eq!(ids.len(), machine.cpus.len());
        }
    }
}

#[test]
fn iommus_are_found() {
    let mut ram = Ram::new();
    ram.put_root(RSDP, 0x10_0000, &[0x10_1000, 0x10_2000], true);
    ram.put_table(0x10_1000, b"APIC", &madt());
    // One at 0xfed80000, with all functions behind it.
    let block = bytes(&[
        (0, 8),
        (0, 4),
        (0x10, 1),
        (0, 1),
        (28, 2),
        (2, 2),
        (0x40, 2),
        (0xfed8_0000, 8),
        (0, 8),
        (1, 4),
    ]);
    ram.put_table(0x10_2000, b"IVRS", &block);
    let machine = Machine::read(&ram, Some(RSDP)).unwrap();
    assert_eq!(machine.iommus.iommus[0].address, 0xfed8_0000);
    assert_eq!(machine.iommus.requester(0x18), Some(0x18));
}
