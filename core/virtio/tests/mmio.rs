// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A device behind MMIO, as Linux drives it (`drivers/virtio/virtio_mmio.c`).

mod common;

use common::disk::OFFERED;
use common::{Ram, areas};
use turnstile_virtio::config::{BLOCK, Block, ENTROPY};
use turnstile_virtio::features::Features;
use turnstile_virtio::registers::{Effect, Registers};
use turnstile_virtio::ring::{Buffer, Options};
use turnstile_virtio::{device, driver, mmio};

/// The steps of `virtio_mmio.c`: vm_get_features, vm_finalize_features, vm_setup_vq, vm_notify, vm_interrupt, vm_del_vq.
#[test]
fn a_request_goes_through_an_mmio_device() {
    let ram = Ram::new(0x1_0000);
    let registers = Registers::new(OFFERED | Block::CONFIG_WCE, &[], [64]);
    let mut disk =
        mmio::Device::new(BLOCK, 0x554d_4551, registers, Block { capacity: 8, ..Block::default() });
    let head: Vec<u64> = (0..4).map(|word| disk.read(4 * word, 4)).collect();
    assert_eq!(head, [0x7472_6976, 2, 2, 0x554d_4551]);
    assert_eq!(disk.write(0x70, 4, 0), Some(Effect::Reset));
    let _ = (disk.write(0x70, 4, 1), disk.write(0x70, 4, 3), disk.write(0x14, 4, 1));
    assert_eq!(disk.read(0x10, 4), (OFFERED | Features::VERSION_1).bits() >> 32);
    for (select, value) in [(1, 1), (0, Features::EVENT_IDX.bits())] {
        let _ = (disk.write(0x24, 4, select), disk.write(0x20, 4, value));
    }
    assert_eq!((disk.write(0x70, 4, 11), disk.read(0x70, 4)), (None, 11));
    assert_eq!(disk.write(0x30, 4, 0), None);
    assert_eq!((disk.read(0x44, 4), disk.read(0x34, 4)), (0, 64));
    let (areas, heap) = areas(64);
    for (at, value) in [
        (0x38, 64),
        (0x80, areas.descriptors & 0xffff_ffff),
        (0x84, areas.descriptors >> 32),
        (0x90, areas.driver & 0xffff_ffff),
        (0x94, areas.driver >> 32),
        (0xa0, areas.device & 0xffff_ffff),
        (0xa4, areas.device >> 32),
    ] {
        assert_eq!(disk.write(at, 4, value), None);
    }
    assert_eq!((disk.write(0x44, 4, 1), disk.read(0x44, 4)), (Some(Effect::Enabled(0)), 1));
    assert_eq!(disk.registers.queue(0).unwrap().areas(), areas);
    assert_eq!(disk.write(0x70, 4, 15), Some(Effect::Started));
    let options = Options::from(disk.registers.features());
    assert_eq!(options, Options { indirect: false, event_idx: true });
    let layout = disk.registers.queue(0).unwrap().layout(&ram).unwrap();
    let mut driver: driver::Queue<64> = driver::Queue::new(&ram, layout, options).unwrap();
    let mut queue = device::Queue::new(layout, options, 130);
    let id = driver.add(&ram, &[Buffer { address: heap, length: 1, writable: true }]).unwrap();
    assert_eq!(driver.publish(&ram), Ok(true));
    assert_eq!(disk.write(0x50, 4, 0), Some(Effect::Notified(0)));
    assert_eq!((disk.write(0x50, 4, 1), disk.write(0x50, 4, 0x1_0000)), (None, None));
    let token = queue.pop(&ram).unwrap().unwrap().finish();
    queue.complete(&ram, token, 1).unwrap();
    assert_eq!(queue.publish(&ram), Ok(true));
    disk.raise_queue();
    assert!(disk.line());
    assert_eq!(disk.read(0x60, 4), 1);
    assert_eq!((disk.write(0x64, 4, 1), disk.line()), (None, false));
    assert_eq!(driver.take(&ram), Ok(Some(driver::Used { id, written: 1 })));
    assert!(disk.raise_config());
    assert_eq!((disk.read(0x60, 4), disk.read(0xfc, 4)), (2, 1));
    // The configuration is bytes of any size; there is no shared memory.
    assert_eq!((disk.read(0x100, 8), disk.read(0x100, 1), disk.read(0x13c, 4)), (8, 8, 0));
    assert_eq!(disk.write(0x120, 1, 1), Some(Effect::Configured));
    assert_eq!((disk.write(0x120, 1, 1), disk.write(0x100, 4, 9), disk.read(0x120, 1)), (None, None, 1));
    assert_eq!((disk.read(0xb0, 4), disk.read(0xb4, 4)), (0xffff_ffff, 0xffff_ffff));
    assert_eq!((disk.write(0x44, 4, 0), disk.read(0x44, 4)), (Some(Effect::QueueReset(0)), 0));
    assert_eq!(disk.write(0x44, 4, 0), None);
    assert!(disk.fail());
    assert_eq!(disk.read(0x70, 4), 0x4f);
    assert_eq!(disk.write(0x50, 4, 0), None);
}

fn entropy() -> mmio::Device<1, ()> {
    mmio::Device::new(ENTROPY, 0, Registers::new(Features::empty(), &[], [8]), ())
}

/// A driver may look at its queues before it acknowledges, as some do, or behind that, as Linux's: neither loses a reason.
#[test]
fn an_acknowledgement_takes_away_what_the_driver_has_read() {
    let mut device = entropy();
    device.raise_queue();
    assert_eq!(device.read(0x60, 4), 1);
    device.raise_queue();
    assert_eq!((device.write(0x64, 4, 1), device.read(0x60, 4)), (None, 1), "it came behind the read");
    assert_eq!((device.write(0x64, 4, 2), device.read(0x60, 4)), (None, 1), "another reason");
    assert_eq!((device.write(0x64, 4, 3), device.line()), (None, false));
    device.raise_queue();
    assert_eq!(device.write(0x64, 4, 1), None);
    assert!(device.line(), "nobody has read it");
}

/// A driver that is not ready hears of nothing.
#[test]
fn there_are_no_interrupts_before_the_driver_is_ready() {
    let mut device = entropy();
    assert!(!device.raise_config() && !device.fail() && !device.line());
    assert_eq!((device.read(0xfc, 4), device.read(0x70, 4)), (1, 0x40), "but it can see it");
}

#[test]
fn accesses_of_other_sizes_and_places_do_nothing() {
    let mut device = entropy();
    for (offset, size) in [(0, 1), (0, 2), (0, 8), (1, 4), (0x6e, 4), (0x1fe, 4), (0x200, 4), (u64::MAX, 8)] {
        assert_eq!(device.read(offset, size), 0, "{offset:#x} {size}");
        assert_eq!(device.write(offset, size, u64::MAX), None, "{offset:#x} {size}");
    }
    for size in [1, 2, 8] {
        assert_eq!(device.write(0x70, size, 1), None);
    }
    assert_eq!(device.read(0x70, 4), 0);
    assert_eq!((device.write(0x30, 4, 1), device.read(0x34, 4)), (None, 0), "there is no such queue");
    assert_eq!((device.write(0x30, 4, 0x1_0000), device.read(0x34, 4)), (None, 0), "not queue 0");
}
