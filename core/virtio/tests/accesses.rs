// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Accesses of a hostile guest to both transports.

mod common;

use common::Ram;
use common::disk::{OFFERED, disk, function};
use proptest::prelude::*;
use turnstile_virtio::config::{BLOCK, Block};
use turnstile_virtio::features::Features;
use turnstile_virtio::mmio;
use turnstile_virtio::registers::{Effect, Registers, Status};

#[derive(Clone, Debug)]
enum Access {
    Bar(u8, u64, u8, u64),
    Config(u16, u8, u32),
    Mmio(u64, u8, u64),
}

fn accesses() -> impl Strategy<Value = Access> {
    let near = prop_oneof![4 => 0u64..0x40, 1 => 0x1000u64..0x1004, 1 => 0x2000u64..0x2060, 1 => 0x3000u64..0x3010, 1 => any::<u64>()];
    let size = prop_oneof![Just(1u8), Just(2), Just(4), Just(8), any::<u8>()];
    let value = prop_oneof![4 => 0u64..16, 1 => any::<u64>(), 1 => Just(u64::MAX)];
    prop_oneof![
        4 => (prop_oneof![3 => Just(4u8), 1 => 0u8..8], near, size.clone(), value.clone())
            .prop_map(|(bar, at, size, value)| Access::Bar(bar, at, size, value)),
        1 => (0u16..0x120, size.clone(), any::<u32>()).prop_map(|(at, size, value)| Access::Config(at, size, value)),
        4 => (prop_oneof![6 => (0u64..0x40).prop_map(|word| 4 * word), 1 => any::<u64>()], size, value)
            .prop_map(|(at, size, value)| Access::Mmio(at, size, value)),
    ]
}

proptest! {
    /// Whatever a guest accesses: every access is answered, and a queue is notified only while it is enabled and the driver ready.
    #[test]
    fn any_access_is_answered(accesses in prop::collection::vec(accesses(), 1..80)) {
        let (mut disk, mut function) = (disk(), function());
        let mut other = mmio::Device::new(BLOCK, 0, Registers::new(OFFERED, &[], [64, 0, 1]), Block::default());
        for access in accesses {
            match access {
                Access::Bar(bar, offset, size, value) => {
                    disk.read(bar, offset, size);
                    let outcome = disk.write(function.msix(), bar, offset, size, value);
                    check(outcome.effect, &disk.registers)?;
                    prop_assert!(outcome.message.is_none(), "no vector has anything to tell");
                }
                Access::Config(offset, size, value) => {
                    disk.read_config(&function, offset, size);
                    let outcome = disk.write_config(&mut function, offset, size, value);
                    check(outcome.effect, &disk.registers)?;
                    prop_assert_eq!(function.read(0, 4), 0x1042_1af4);
                }
                Access::Mmio(offset, size, value) => {
                    other.read(offset, size);
                    let effect = other.write(offset, size, value);
                    check(effect, &other.registers)?;
                }
            }
            prop_assert!(other.registers.queue(1).is_none());
            prop_assert_eq!(disk.config.capacity, 0x1234_5678_9abc);
        }
    }
}

fn check<const Q: usize>(effect: Option<Effect>, registers: &Registers<Q>) -> Result<(), TestCaseError> {
    let status = registers.status();
    prop_assert!(!status.contains(Status::DRIVER_OK) || status.contains(Status::FEATURES_OK));
    prop_assert!(!status.contains(Status::FEATURES_OK) || registers.features().contains(Features::VERSION_1));
    match effect {
        Some(Effect::Notified(queue)) => {
            prop_assert!(registers.is_running() && registers.queue(queue).unwrap().is_enabled());
        }
        Some(Effect::Enabled(queue)) => prop_assert!(registers.queue(queue).unwrap().is_enabled()),
        Some(Effect::QueueReset(queue)) => prop_assert!(!registers.queue(queue).unwrap().is_enabled()),
        Some(Effect::Reset) => prop_assert_eq!(status, Status::empty()),
        Some(Effect::Started) => prop_assert!(status.contains(Status::DRIVER_OK)),
        Some(Effect::Configured) | None => {}
    }
    let layouts = (0..3).filter_map(|queue| registers.queue(queue));
    for queue in layouts {
        // Checked against memory only when the device begins: any answer, but no panic.
        let _ = queue.layout(&Ram::new(16));
    }
    Ok(())
}
