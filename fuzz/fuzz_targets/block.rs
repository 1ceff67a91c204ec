// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A block device over an overlay, with memory that holds anything and changes under the reader; partition tables of any bytes.
#![no_main]

use std::sync::atomic::AtomicU32;

use libfuzzer_sys::fuzz_target;
use turnstile_block::disk::Disk;
use turnstile_block::gpt::{MAX_BYTES, Reader, Step, Want};
use turnstile_block::overlay::{Kept, Overlay};
use turnstile_block::queue::Queue;
use turnstile_block::request::Budget;
use turnstile_block::settings::Settings;
use turnstile_rig::{Fuse, Ram, Ring};
use turnstile_virtio::ring::Options;

fuzz_target!(|input: (u8, Vec<u8>, Vec<u8>, u64, Vec<u16>)| {
    let (options, memory, image, seed, budgets) = input;
    table(&image);
    let options = Options { indirect: options & 1 != 0, event_idx: options & 2 != 0 };
    let ram = Ram::new(0x2000, Fuse::default());
    let ring = Ring::new(&ram, Ram::BASE, 8, options);
    ram.put(Ram::BASE, &memory[..memory.len().min(0x2000)]);
    ram.restless.set(seed);
    let words = || (0..8).map(|_| AtomicU32::new(0)).collect::<Vec<_>>();
    let (map, owners, mut store) = (words(), words(), vec![0; 4096 * 8]);
    let kept = Kept { map: &map, owners: &owners };
    let settings = Settings::new("fuzz");
    let rules = settings.rules(settings.features(), true);
    let mut disk = Overlay::new(&image[..], &mut store[..], kept, 64).expect("it fits");
    let mut queue: Queue<16> = Queue::new(ring.layout, options);
    for budget in budgets.into_iter().take(64) {
        ram.fuse.mend();
        if queue.serve(&ram, &mut disk, &rules, &mut Budget(budget.into())).is_err() {
            queue = Queue::resume(&ram, ring.layout, options).expect("the ring is memory");
        }
        assert!(ram.fuse.steps() < 200_000 && disk.room() <= 8 && disk.sectors() == 64);
    }
});

/// Whatever is on a disk: few blocks are read, and what is found is on it.
fn table(image: &[u8]) {
    let blocks = (image.len() / 512) as u64;
    let Ok(mut reader) = Reader::new(blocks, 512, Want::Number(1)) else { return };
    for _ in 0..2 + 2 * MAX_BYTES / 512 {
        match reader.step() {
            Ok(Step::Block(block)) => reader.give(&image[block as usize * 512..][..512]),
            Ok(Step::Done(found)) => {
                assert!(found.blocks != 0 && found.first + found.blocks <= blocks);
                return;
            }
            Err(_) => return,
        }
    }
    assert!(!matches!(reader.step(), Ok(Step::Block(_))));
}
