// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The ACPI tables of a PC, read back: sums, lengths, references, and what they say.

use turnstile_machine::pc::{self, acpi};

/// Tables as a guest finds them.
struct Memory(Vec<u8>);

impl Memory {
    fn of(vcpus: usize) -> Self {
        Self(acpi::build(vcpus, 0))
    }

    fn at(&self, address: u64, length: usize) -> &[u8] {
        let start = (address - pc::FIRMWARE) as usize;
        &self.0[start..start + length]
    }

    fn number(&self, address: u64, length: usize) -> u64 {
        self.at(address, length).iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
    }

    /// A table, after its length and sum are checked.
    fn table(&self, address: u64) -> &[u8] {
        let table = self.at(address, self.number(address + 4, 4) as usize);
        assert_eq!(sum(table), 0, "{:?}", String::from_utf8_lossy(&table[..4]));
        table
    }

    /// The tables that the XSDT names, from the RSDP on.
    fn tables(&self) -> Vec<(u64, &[u8])> {
        let rsdp = self.at(acpi::RSDP, 36);
        assert_eq!((&rsdp[..8], rsdp[15], sum(&rsdp[..20]), sum(rsdp)), (&b"RSD PTR "[..], 2, 0, 0));
        let xsdt = self.number(acpi::RSDP + 24, 8);
        let count = (self.table(xsdt).len() - 36) / 8;
        assert_eq!(&self.table(xsdt)[..4], b"XSDT");
        let entry = |index| self.number(xsdt + 36 + 8 * index as u64, 8);
        (0..count).map(entry).map(|address| (address, self.table(address))).collect()
    }

    fn find(&self, signature: &[u8]) -> &[u8] {
        self.tables().into_iter().find(|(_, table)| &table[..4] == signature).expect("it is there").1
    }
}

fn sum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// The entries of a MADT: their types and bodies.
fn entries(madt: &[u8]) -> Vec<(u8, &[u8])> {
    let mut rest = &madt[44..];
    let mut entries = Vec::new();
    while let [kind, length, ..] = *rest {
        let (entry, others) = rest.split_at(length.into());
        entries.push((kind, &entry[2..]));
        rest = others;
    }
    entries
}

#[test]
fn the_fixed_table_names_ports_that_are_there() {
    let memory = Memory::of(4);
    let fadt = memory.find(b"FACP");
    assert_eq!((fadt.len(), fadt[8]), (276, 6));
    assert_eq!((fadt[46], word(fadt, 48)), (9, 0), "the SCI, and no SMI command: ACPI is on");
    assert_eq!([56, 64, 76].map(|at| word(fadt, at)), [0x600, 0x604, 0x608]);
    assert_eq!((fadt[88], fadt[89], fadt[91], fadt[108]), (4, 2, 4, 0x32));
    assert_eq!((&fadt[116..128], fadt[128]), (&[1, 8, 0, 1, 0xf9, 0xc, 0, 0, 0, 0, 0, 0][..], 0xe));
    assert_ne!(word(fadt, 112) & 1 << 10, 0, "the reset register counts");
    let facs = u64::from(word(fadt, 36));
    assert!(facs.is_multiple_of(64));
    assert_eq!((memory.at(facs, 4), memory.number(facs + 4, 4)), (&b"FACS"[..], 64));
}

#[test]
fn the_namespace_has_a_way_to_switch_off() {
    let memory = Memory::of(1);
    let fadt = memory.find(b"FACP");
    let dsdt = memory.table(word(fadt, 40).into());
    assert_eq!(&dsdt[..4], b"DSDT");
    let named = |name: &[u8]| dsdt.windows(name.len()).position(|window| window == name);
    let s5 = named(b"\x08_S5_\x12").expect("a name of a package");
    // The package's length and count, and its elements: SLP_TYP of PM1a and PM1b.
    assert_eq!(dsdt[s5 + 7], 4);
    assert_eq!(&dsdt[s5 + 8..s5 + 12], [0; 4], "Zero is an operation of its own");
    assert!(named(b"COM1").is_some() && named(&[0x41, 0xd0, 0x05, 0x01]).is_some(), "PNP0501");
    assert!(named(b"\x47\x01\xf8\x03\xf8\x03\x01\x08").is_some(), "its ports");
}

#[test]
fn every_processor_is_there_once() {
    for vcpus in [1, 4, 255, 256, 512] {
        let memory = Memory::of(vcpus);
        assert!(memory.0.len() as u64 <= pc::HIGH_START - pc::FIRMWARE);
        let entries = entries(memory.find(b"APIC"));
        let ids = entries.iter().filter_map(|(kind, body)| match kind {
            0 => {
                assert_eq!((body[0], word(body, 2)), (body[1], 1));
                assert_ne!(body[1], 255, "the broadcast");
                Some(u32::from(body[1]))
            }
            9 => {
                assert_eq!((word(body, 6), word(body, 10)), (1, word(body, 2)));
                Some(word(body, 2))
            }
            _ => None,
        });
        assert!(ids.eq(0..vcpus as u32));
    }
}

#[test]
fn the_lines_are_as_they_are_wired() {
    let memory = Memory::of(2);
    let madt = memory.find(b"APIC");
    assert_eq!((word(madt, 36), word(madt, 40)), (0xfee0_0000, 1));
    let entries = entries(madt);
    let of =
        |kind| entries.iter().filter(move |entry| entry.0 == kind).map(|entry| entry.1).collect::<Vec<_>>();
    assert_eq!(of(1), [&[0, 0, 0, 0, 0xc0, 0xfe, 0, 0, 0, 0][..]]);
    assert_eq!(of(2), [&[0, 0, 2, 0, 0, 0, 0, 0][..], &[0, 9, 9, 0, 0, 0, 13, 0]]);
    assert_eq!(of(4), [&[0xff, 0, 0, 1][..]]);
}

#[test]
fn the_bus_is_there_if_something_is_on_it() {
    let without = Memory::of(2);
    let named = |bytes: &[u8], name: &[u8]| bytes.windows(name.len()).any(|window| window == name);
    assert!(!named(&without.0, b"PCI0") && without.tables().len() == 2);
    assert_ne!(without.find(b"FACP")[109] & 1 << 3, 0, "no messages");
    let memory = Memory(acpi::build(2, 1));
    let fadt = memory.find(b"FACP");
    assert_eq!(fadt[109] & 1 << 3, 0, "messages");
    let mcfg = memory.find(b"MCFG");
    assert_eq!((mcfg.len(), word(mcfg, 44), word(mcfg, 48)), (60, 0xe000_0000, 0));
    assert_eq!(&mcfg[52..56], [0; 4], "segment 0, bus 0");
    let dsdt = memory.table(word(fadt, 40).into());
    let parts: [&[u8]; 5] = [
        b"PCI0",
        &[0x41, 0xd0, 0x0a, 0x08],
        b"_OSC",
        b"MBRD",
        &[0x86, 9, 0, 1, 0, 0, 0, 0xe0, 0, 0, 0x10, 0],
    ];
    for name in parts {
        assert!(named(dsdt, name), "{name:x?}");
    }
    let window = [0, 0, 0, 0xc0, 0xff, 0xff, 0xff, 0xdf, 0, 0, 0, 0, 0, 0, 0, 0x20];
    assert!(named(dsdt, &window), "the memory of BARs");
}

#[test]
fn each_function_has_places_of_its_own() {
    let reserved: Vec<_> = pc::regions(1 << 30, 1).into_iter().collect();
    assert!(reserved.iter().any(|region| region.base == pc::PCI_CONFIGURATION.start
        && region.kind == pc::Use::Reserved
        && region.base + region.size == pc::PCI_CONFIGURATION.end));
    assert_eq!(reserved.len(), pc::regions(1 << 30, 0).len() + 1);
    for slot in 0..pc::PCI_SLOTS {
        assert!(pc::PCI_CONFIGURATION.contains(&(pc::pci_configuration(slot) + 0xfff)));
        assert!(pc::PCI_MEMORY.contains(&(pc::pci_bars(slot) + 0xf_ffff)));
        assert_eq!((pc::pci_configuration(slot) >> 15) & 31, slot);
    }
}
