// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The MSRs of a guest.

use turnstile_x86policy::msr::{Bank, Emulated, OWN, Policy, policy};

fn place(number: u32) -> turnstile_x86policy::msr::Place {
    match policy(number) {
        Policy::Kept(place) => place,
        other => panic!("{number:#x} is {other:?}"),
    }
}

#[test]
fn the_cpus_own_are_listed() {
    let ranges = [0..0x2000, 0xc000_0000..0xc000_2000, 0xc001_0000..0xc001_2000u32];
    let own: Vec<u32> = ranges.into_iter().flatten().filter(|&msr| policy(msr) == Policy::Own).collect();
    assert_eq!(own, OWN);
}

#[test]
fn what_has_an_effect_is_emulated() {
    for (number, emulated) in [
        (0x10, Emulated::Tsc),
        (0x1b, Emulated::ApicBase),
        (0x48, Emulated::SpeculationControl),
        (0x49, Emulated::PredictionCommand),
        (0x277, Emulated::Pat),
        (0x6e0, Emulated::TscDeadline),
        (0x80b, Emulated::X2Apic),
        (0xc000_0080, Emulated::Efer),
        (0x11, Emulated::Kvm),
        (0x4b56_4d04, Emulated::Kvm),
    ] {
        assert_eq!(policy(number), Policy::Emulated(emulated), "{number:#x}");
    }
}

#[test]
fn svm_performance_monitors_and_the_unknown_are_absent() {
    for number in [
        0x3a,
        0x3b,
        0xc1,
        0x186,
        0x38f,
        0xda0,
        0x1000,
        0x4000_0000,
        0xc001_0008,
        0xc001_0114,
        0xc001_0117,
        0xc001_0200,
        0xc000_0104,
        u32::MAX,
    ] {
        assert_eq!(policy(number), Policy::Absent, "{number:#x}");
    }
}

#[test]
fn the_counters_that_every_amd_processor_has_count_nothing() {
    for number in 0xc001_0000..0xc001_0008 {
        assert_eq!(policy(number), Policy::Constant { value: 0, ignores_writes: true }, "{number:#x}");
    }
}

#[test]
fn kept_registers_have_places_of_their_own() {
    let kept: Vec<u32> = (0..0x1000).filter(|&msr| matches!(policy(msr), Policy::Kept(_))).collect();
    assert_eq!(kept.len(), 1 + 1 + 16 + 11);
    let mut bank = Bank::new();
    for (value, number) in (0..).zip(&kept) {
        // A write that every one of them takes.
        let value = if value % 2 == 0 { 0 } else { 4 };
        let taken = bank.write(place(*number), value);
        assert_eq!(bank.read(place(*number)) == value, taken, "{number:#x}");
    }
}

#[test]
fn mtrrs_are_as_firmware_leaves_them_and_take_only_memory_types() {
    let mut bank = Bank::new();
    assert_eq!(bank.read(place(0x2ff)), 0xc06);
    assert_eq!(bank.read(place(0x250)), 0x0606_0606_0606_0606);
    assert!(
        bank.write(place(0x2ff), 0x800)
            && !bank.write(place(0x2ff), 0x802)
            && !bank.write(place(0x2ff), 0x1000)
    );
    assert!(!bank.write(place(0x268), 0x0706_0606_0606_0606));
    assert!(bank.write(place(0x200), 0xc000_0000) && bank.write(place(0x201), 0xf_c000_0800));
    assert!(!bank.write(place(0x200), 0x100) && !bank.write(place(0x201), 1));
    assert_eq!(bank.read(place(0x200)), 0xc000_0000, "what is refused changes nothing");
}
