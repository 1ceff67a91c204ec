// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What guests see of processors, from those of two physical ones.

use proptest::prelude::*;
use turnstile_mitigation::x86_64::Offer;
use turnstile_x86policy::{Answer, CpuidTable, Follows, Processor};

/// Bits that are told as they are.
const SPECULATION: Offer =
    Offer { extended_8_ebx: 0x5000_1000, extended_21_eax: 0x1000_0004, extended_21_ecx: 6 };
const VCPU: Processor =
    Processor { id: 3, count: 4, x2apic: true, kvm: Some(0x40), speculation: SPECULATION };

/// A processor that has everything: each leaf answers with all ones but where a number is expected.
fn everything(leaf: u32, subleaf: u32) -> [u32; 4] {
    const ALL: u32 = u32::MAX;
    match (leaf, subleaf) {
        (0, _) => [0x20, 0x6874_7541, 0x444d_4163, 0x6974_6e65],
        (0x8000_0000, _) => [0x8000_0030, 0x6874_7541, 0x444d_4163, 0x6974_6e65],
        (7, 0) => [2, ALL, ALL, ALL],
        (0xd, 0) => [ALL, 0x1000, 0x2000, ALL],
        (0xd, 1) => [ALL; 4],
        (0xd, 2) => [256, 576, 0, 0],
        (0xd, 5) => [64, 1088, 0, 0],
        (0xd, 6) => [512, 1152, 0, 0],
        (0xd, 7) => [1024, 1664, 0, 0],
        (0xd, 9) => [8, 2688, 0, 0],
        (0xd, 11) => [16, 0, 1, 0],
        (0xd, _) => [100, 3000, 2, 0],
        (0x8000_001d, 0) => [0x0000_4121, 7, 63, 0],
        (0x8000_001d, 1) => [0x003f_c163, 15, 8191, 1],
        (0x8000_001d, _) => [0; 4],
        (0x8000_0008, _) => [0x0000_3030, ALL, ALL, ALL],
        _ => [ALL; 4],
    }
}

/// The least that a 64-bit processor with SVM has.
fn little(leaf: u32, _: u32) -> [u32; 4] {
    match leaf {
        0 => [1, 0, 0, 0],
        1 => [0x0006_0fb1, 0x0000_0800, 0, 0x0781_abfd],
        0x8000_0000 => [0x8000_000a, 0, 0, 0],
        0x8000_0001 => [0x0006_0fb1, 0, 4, 0x2010_0800],
        0x8000_0008 => [0x0000_3028, 0, 0, 0],
        _ => [0; 4],
    }
}

fn table(host: fn(u32, u32) -> [u32; 4]) -> CpuidTable {
    CpuidTable::compose(&host, &VCPU)
}

fn registers(table: &CpuidTable, leaf: u32, subleaf: u32) -> [u32; 4] {
    table.get(leaf, subleaf).registers
}

#[test]
fn nothing_that_needs_the_hypervisor_is_offered() {
    let table = table(everything);
    let [_, _, ecx, edx] = registers(&table, 1, 0);
    for (bit, name) in [(2, "DTES64"), (3, "MONITOR"), (5, "VMX"), (6, "SMX"), (15, "PDCM"), (27, "OSXSAVE")]
    {
        assert_eq!(ecx >> bit & 1, 0, "{name}");
    }
    assert_eq!(ecx >> 31, 1, "a hypervisor");
    assert_eq!((ecx >> 21 & 1, ecx >> 24 & 1), (1, 1), "x2APIC and the deadline timer are ours");
    assert_eq!(edx >> 21 & 1, 0, "debug store");
    let [_, _, ecx, _] = registers(&table, 0x8000_0001, 0);
    for (bit, name) in
        [(2, "SVM"), (10, "IBS"), (12, "SKINIT"), (23, "PERFCTR"), (24, "PERFCTR_NB"), (29, "MONITORX")]
    {
        assert_eq!(ecx >> bit & 1, 0, "{name}");
    }
    let [_, ebx, _, _] = registers(&table, 7, 0);
    for (bit, name) in [(1, "TSC_ADJUST"), (4, "HLE"), (11, "RTM"), (12, "PQM"), (14, "MPX"), (25, "PT")] {
        assert_eq!(ebx >> bit & 1, 0, "{name}");
    }
    for leaf in [5, 9, 0xa, 0x8000_000a, 0x8000_001b, 0x8000_001c, 0x8000_001f, 0x8000_0020] {
        assert_eq!(table.get(leaf, 0), Answer { registers: [0; 4], follows: Follows::Nothing }, "{leaf:#x}");
    }
}

#[test]
fn of_speculation_nothing_is_told_but_what_is_offered() {
    let told = |host: fn(u32, u32) -> [u32; 4], speculation| {
        let table = CpuidTable::compose(&host, &Processor { speculation, ..VCPU });
        [
            registers(&table, 0x8000_0008, 0)[1],
            registers(&table, 0x8000_0021, 0)[0],
            registers(&table, 0x8000_0021, 0)[2],
        ]
    };
    assert_eq!(told(everything, Offer::default()), [0x205, 0x41, 0]);
    assert_eq!(told(everything, SPECULATION), [0x5000_1205, 0x1000_0045, 6]);
    assert_eq!(registers(&table(everything), 7, 0)[3] & 0xfc00_0000, 0, "nor in the form of other makers");
    assert_eq!(told(little, SPECULATION), [0x5000_1000, 0, 0], "a leaf that is not there says nothing");
}

#[test]
fn leaves_end_where_they_say() {
    for host in [everything, little] {
        let table = table(host);
        for first in [0, 0x4000_0000, 0x8000_0000] {
            let highest = table.highest(first).unwrap();
            assert_eq!(registers(&table, first, 0)[0], highest);
            assert_eq!(registers(&table, highest + 1, 0), [0; 4]);
        }
        assert_eq!(registers(&table, u32::MAX, 0), [0; 4]);
    }
    assert_eq!(table(everything).highest(0), Some(0xd));
    assert_eq!(table(everything).highest(0x8000_0000), Some(0x8000_0021));
    assert_eq!(table(little).highest(0x8000_0000), Some(0x8000_000a));
}

#[test]
fn the_signature_is_kvms() {
    let signature = registers(&table(little), 0x4000_0000, 0);
    let text: Vec<u8> = signature[1..].iter().flat_map(|word| word.to_le_bytes()).collect();
    assert_eq!(&text, b"KVMKVMKVM\0\0\0");
    assert_eq!(registers(&table(little), 0x4000_0001, 7), [0x40, 0, 0, 0]);
    let without = CpuidTable::compose(&little, &Processor { kvm: None, ..VCPU });
    assert_eq!(registers(&without, 0x4000_0000, 0), [0; 4]);
}

#[test]
fn each_vcpu_is_a_core_of_one_package() {
    let table = table(everything);
    let [_, ebx, _, edx] = registers(&table, 1, 0);
    assert_eq!((ebx >> 24, ebx >> 16 & 0xff, edx >> 28 & 1), (3, 4, 1));
    assert_eq!(registers(&table, 0xb, 0), [0, 1, 0x100, 3]);
    assert_eq!(registers(&table, 0xb, 1), [2, 4, 0x201, 3]);
    assert_eq!(registers(&table, 0xb, 2), [0, 0, 2, 3]);
    assert_eq!(registers(&table, 0x8000_0008, 0)[2], 2 << 12 | 3);
    assert_eq!(registers(&table, 0x8000_001e, 0), [3, 3, 0, 0]);
    assert_eq!(registers(&table, 0x8000_001d, 0)[0] >> 14 & 0xfff, 0, "the first level is its own");
    assert_eq!(registers(&table, 0x8000_001d, 1)[0] >> 14 & 0xfff, 3, "the last level is everybody's");
    assert_eq!(registers(&table, 0x8000_001d, 2), [0; 4]);
    let alone =
        CpuidTable::compose(&everything, &Processor { id: 0, count: 1, x2apic: false, kvm: None, ..VCPU });
    let [_, ebx, ecx, edx] = registers(&alone, 1, 0);
    assert_eq!((ebx >> 16, edx >> 28 & 1, ecx >> 21 & 1), (1, 0, 0));
    let many = CpuidTable::compose(&everything, &Processor { id: 511, count: 512, ..VCPU });
    assert_eq!(registers(&many, 0xb, 1), [9, 512, 0x201, 511]);
    assert_eq!(registers(&many, 1, 0)[1] >> 16, 0xff_ff);
}

#[test]
fn xsave_areas_are_as_large_as_what_is_on() {
    let table = table(everything);
    let answer = table.get(0xd, 0);
    assert_eq!(answer.follows, Follows::XsaveSize);
    assert_eq!(answer.registers, [0x2e7, 576, 2696, 0]);
    assert_eq!([1, 3, 7, 0xe7, 0x2e7].map(|xcr0| table.xsave_size(xcr0)), [576, 576, 832, 2688, 2696]);
    assert_eq!(table.compacted_size(0x207), 576 + 256 + 8);
    assert_eq!(registers(&table, 0xd, 1)[0], 7, "no XSAVES");
    assert_eq!(registers(&table, 0xd, 2), [256, 576, 0, 0]);
    assert_eq!(registers(&table, 0xd, 3), [0; 4], "MPX is not offered");
    assert_eq!(registers(&table, 0xd, 11), [0; 4], "nor is supervisor state");
    assert_eq!(self::table(little).get(0xd, 0), Answer { registers: [0; 4], follows: Follows::Nothing });
}

#[test]
fn what_follows_the_state_says_so() {
    let table = table(everything);
    assert_eq!(table.get(1, 9).follows, Follows::Features);
    assert_eq!(table.get(7, 0).follows, Follows::Ospke);
    assert_eq!(table.get(7, 0).registers[2] & 1 << 4, 0);
    assert_eq!(table.get(7, 1).follows, Follows::Nothing);
    assert_eq!(table.get(7, 2).registers, [0; 4]);
}

proptest! {
    #[test]
    fn every_leaf_of_every_processor_is_answered(
        seed: u64, leaf: u32, subleaf: u32, id in 0u32..512, count in 1u32..=512
    ) {
        // Any processor at all: its answers are a hash of the question.
        let host = move |leaf: u32, subleaf: u32| {
            let mix = (seed ^ u64::from(leaf) << 32 ^ u64::from(subleaf)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let [a, b] = [mix as u32 & 0x8000_00ff, (mix >> 32) as u32 & 0xffff];
            [a, b, a.rotate_left(7) & 0xfff, b.rotate_left(3)]
        };
        let table = CpuidTable::compose(&host, &Processor { id, count, x2apic: true, kvm: Some(0), ..VCPU });
        let _ = table.get(leaf, subleaf);
        prop_assert_eq!(table.get(1, 0).registers[2] & 1 << 5, 0);
        prop_assert_eq!(table.get(0x8000_0001, 0).registers[2] & 1 << 2, 0);
    }
}
