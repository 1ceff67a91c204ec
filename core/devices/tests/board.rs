// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What else is on the board of a PC: ACPI's registers, the ways to reset, the configuration device.

use turnstile_devices::{AcpiPm, FwCfg, PM_TIMER_FREQUENCY, PowerOff, Reset, ResetPorts};

#[test]
fn soft_off_is_type_and_enable() {
    let mut pm = AcpiPm::new();
    assert_eq!(pm.read(4, 2, 0), 1, "ACPI mode is on");
    assert_eq!(pm.write(4, 2, 1, 0), None);
    assert_eq!(pm.write(4, 2, 0x3401, 0), None, "a type that is none");
    assert_eq!(pm.write(4, 2, 0x2001, 0), Some(PowerOff));
    assert_eq!(pm.read(4, 2, 0), 1);
    let mut bytes = AcpiPm::new();
    assert_eq!(bytes.write(4, 1, 1, 0), None);
    assert_eq!(bytes.write(5, 1, 0x20, 0), Some(PowerOff));
}

#[test]
fn the_timer_counts_and_says_when_it_turns() {
    let mut pm = AcpiPm::new();
    assert_eq!(u64::from(pm.read(8, 4, 1_000_000_000)), PM_TIMER_FREQUENCY - 1, "rounded down");
    assert_eq!(pm.deadline(0), None);
    pm.write(2, 2, 1, 0);
    let turn = pm.deadline(0).expect("enabled");
    assert_eq!(pm.read(8, 4, turn - 1), 0x7fff_ffff);
    assert!(!pm.interrupt());
    assert_eq!(pm.read(8, 4, turn), 0x8000_0000);
    assert!(pm.interrupt());
    assert_eq!(pm.read(0, 4, turn), 0x0001_0001);
    pm.write(0, 2, 1, turn);
    assert!(!pm.interrupt());
}

#[test]
fn any_size_at_any_offset() {
    let mut pm = AcpiPm::new();
    for offset in 0..=u16::MAX - 8 {
        for size in [1, 2, 4] {
            pm.write(offset % 32, size, 0xffff_dfff, 5);
            assert!(size == 4 || pm.read(offset, size, 5) < 1 << (8 * size));
        }
    }
}

#[test]
fn three_ways_to_reset() {
    let mut ports = ResetPorts::new();
    assert_eq!([0x64, 0x92, 0xcf9].map(|port| ports.read(port)), [0, 2, 0]);
    assert_eq!(ports.write(0x64, 0x20), None);
    assert_eq!(ports.write(0x64, 0xfe), Some(Reset::Processors));
    assert_eq!(ports.write(0x92, 2), None);
    assert_eq!(ports.write(0x92, 3), Some(Reset::Processors));
    assert_eq!(ports.write(0x92, 3), None, "the bit has to rise");
    assert_eq!(ports.read(0x92), 3, "a reset of the processors leaves it as it is");
    assert_eq!(ports.write(0xcf9, 0x02), None);
    assert_eq!(ports.read(0xcf9), 2);
    assert_eq!(ports.write(0xcf9, 0x06), Some(Reset::Machine));
    assert_eq!(ports.write(0xcf9, ResetPorts::FULL), Some(Reset::Machine));
    assert_eq!(ports.write(0xcf9, 0x04), Some(Reset::Processors));
}

#[test]
fn the_configuration_device_answers() {
    let mut device = FwCfg::new(0x1_2345_6000, 4);
    let mut item = |key: u16, length: usize| {
        device.write(FwCfg::SELECTOR, key);
        (0..length).map(|_| device.read(FwCfg::DATA)).collect::<Vec<u8>>()
    };
    assert_eq!(item(0, 6), b"QEMU\0\0");
    assert_eq!(item(1, 4), [1, 0, 0, 0], "no DMA");
    assert_eq!(item(3, 8), 0x1_2345_6000u64.to_le_bytes());
    assert_eq!(item(5, 2), [4, 0]);
    assert_eq!(item(0xf, 2), [4, 0]);
    assert_eq!(item(0x19, 4), [0; 4]);
    assert!((0..=u16::MAX).all(|key| item(key, 16).len() == 16));
}
