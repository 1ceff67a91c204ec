// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests of 4 KiB to a disk in RAM, for a tool that counts instructions:
//!
//! ```sh
//! cargo build --release -p turnstile-block --example requests
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect='*device_turn*' target/release/examples/requests 16
//! ```
//!
//! The argument is the depth. There are 64 turns, each of so many requests.

use turnstile_block::queue::Queue;
use turnstile_block::ram::RamDisk;
use turnstile_block::request::Budget;
use turnstile_block::settings::{Rules, Settings};
use turnstile_rig::{Fuse, Guest, Plain, Ram, Request};
use turnstile_virtio::config::BlockRequest;
use turnstile_virtio::ring::Options;

#[inline(never)] // The tool finds it by its name.
fn device_turn(queue: &mut Queue<128>, memory: &Plain, disk: &mut RamDisk<&mut [u8]>, rules: &Rules) -> bool {
    queue.serve(memory, disk, rules, &mut Budget(1 << 20)).expect("the driver keeps rules").interrupt
}

fn main() {
    let depth = std::env::args().nth(1).and_then(|depth| depth.parse().ok()).unwrap_or(1);
    let length = 0x10_0000;
    let ram = Ram::new(length, Fuse::default());
    let options = Options { indirect: true, event_idx: true };
    let mut guest = Guest::new(&ram, Ram::BASE, 64, options, 0x2000);
    let memory = Plain::new(length);
    let mut bytes = vec![0; 1 << 20];
    let mut disk = RamDisk::new(&mut bytes[..]);
    let settings = Settings::new("x");
    let rules = settings.rules(settings.features(), true);
    let mut queue = Queue::new(guest.ring.layout, options);
    let header = BlockRequest { kind: BlockRequest::IN, sector: 8 }.to_bytes().to_vec();
    let request =
        Request { readable: header, readable_cuts: vec![16], writable: vec![4096, 1], indirect: true };
    for _ in 0..64 {
        (0..depth).for_each(|_| assert!(guest.ask(&ram, &request).is_some()));
        memory.set(ram.get(Ram::BASE, length));
        assert!(device_turn(&mut queue, &memory, &mut disk, &rules));
        ram.put(Ram::BASE, &memory.get());
        assert_eq!(guest.take(&ram).len(), depth);
        assert!(!guest.arm(&ram));
    }
}
