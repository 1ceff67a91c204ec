// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A device that is saved and restored at any instant goes on as if nothing had happened; words that nobody saved do no harm.

use proptest::prelude::*;
use turnstile_pci::msix::Control;
use turnstile_virtio::config::{BLOCK, Block};
use turnstile_virtio::features::{Features, Requirement};
use turnstile_virtio::pci::{BAR_MSIX, BAR_VIRTIO, Device};
use turnstile_virtio::registers::{Registers, Status};
use turnstile_virtio::{mmio, pci};

const OFFERED: Features = Features::INDIRECT_DESC.union(Features::EVENT_IDX).union(Features::RING_RESET);
const REQUIREMENTS: &[Requirement] =
    &[Requirement { feature: Features::INDIRECT_DESC, one_of: Features::EVENT_IDX }];
const SIZES: [u16; 3] = [64, 0, 8];

type Pci = Device<3, 4, Block>;

fn device() -> Pci {
    Device::new(Registers::new(OFFERED, REQUIREMENTS, SIZES), Block::default(), 8)
}

fn again(device: &Pci) -> Pci {
    let words: Vec<u64> = device.save().collect();
    assert_eq!(words.len(), Pci::WORDS);
    pci::Device::restore(OFFERED, REQUIREMENTS, SIZES, (Block::default(), 8), words)
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Write { bar: u8, offset: u64, size: u8, value: u64 },
    Raise(u16),
    Change,
    Fail,
}

/// Writes that drivers make, mostly; so that features are agreed on and queues enabled.
fn step() -> impl Strategy<Value = Step> {
    let common = prop_oneof![
        (0u64..2).prop_map(|value| (0x08, 4, value)),
        (0u64..4).prop_map(|bits| (0x0c, 4, bits << 28)),
        Just((0x0c, 4, 1)),
        prop_oneof![Just(0u64), Just(1), Just(3), Just(11), Just(15), Just(0x8f)]
            .prop_map(|value| (0x14, 1, value)),
        (0u64..4).prop_map(|value| (0x16, 2, value)),
        (0u64..70).prop_map(|value| (0x18, 2, value)),
        (0u64..6).prop_map(|value| (0x1a, 2, value)),
        Just((0x1c, 2, 1)),
        (0u64..3, any::<u64>()).prop_map(|(area, value)| (0x20 + 8 * area, 8, value)),
        Just((0x3a, 2, 1)),
    ];
    let common =
        common.prop_map(|(offset, size, value)| Step::Write { bar: BAR_VIRTIO, offset, size, value });
    let table = (0u64..16, any::<u64>()).prop_map(|(word, value)| Step::Write {
        bar: BAR_MSIX,
        offset: 4 * word,
        size: 4,
        value,
    });
    prop_oneof![8 => common, 3 => table, 2 => (0u16..4).prop_map(Step::Raise), 1 => Just(Step::Change), 1 => Just(Step::Fail)]
}

const CONTROL: Control = Control { enabled: true, masked: false };

fn take(device: &mut Pci, step: Step) -> String {
    match step {
        Step::Write { bar, offset, size, value } => {
            format!("{:?}", device.write(CONTROL, bar, offset, size, value))
        }
        Step::Raise(queue) => format!("{:?}", device.raise_queue(CONTROL, queue)),
        Step::Change => format!("{:?}", device.raise_config(CONTROL)),
        Step::Fail => format!("{:?}", device.fail(CONTROL)),
    }
}

proptest! {
    #[test]
    fn who_is_restored_goes_on(steps in prop::collection::vec(step(), 1..80)) {
        let (mut device, mut other) = (device(), device());
        for step in steps {
            other = again(&other);
            prop_assert_eq!(format!("{device:?}"), format!("{other:?}"));
            prop_assert_eq!(take(&mut device, step), take(&mut other, step));
        }
    }

    #[test]
    fn words_that_nobody_saved_do_no_harm(words in prop::collection::vec(any::<u64>(), 0..Pci::WORDS)) {
        let restored = pci::Device::<3, 4, Block>::restore(OFFERED, REQUIREMENTS, SIZES, (Block::default(), 8), words);
        let registers = &restored.registers;
        let agreed = registers.status().contains(Status::FEATURES_OK);
        prop_assert!(agreed || !registers.is_running());
        prop_assert!((OFFERED | Features::VERSION_1).contains(registers.features()));
        prop_assert!(registers.queue(1).is_none(), "a queue that does not exist");
        for number in [0, 2] {
            prop_assert!(agreed || !registers.queue(number).unwrap().is_enabled());
        }
        prop_assert_eq!(format!("{restored:?}"), format!("{:?}", again(&restored)));
    }
}

/// The line of a device behind MMIO is high until its driver has seen why, whoever serves it.
#[test]
fn reasons_for_an_interrupt_stay() {
    let mut disk = mmio::Device::new(BLOCK, 0, Registers::new(OFFERED, &[], [8]), Block::default());
    disk.raise_queue();
    let registers = Registers::<1>::restore(OFFERED, &[], [8], disk.registers.save());
    assert!(mmio::Device::new(BLOCK, 0, registers, Block::default()).line());
}
