// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Console, entropy device and balloon, with memory that holds anything and changes under the reader.
#![no_main]

use libfuzzer_sys::fuzz_target;
use turnstile_balloon::{Balloons, Kind, PAGE, Pages};
use turnstile_console::control::{Name, PORTS, Port, Ports, State};
use turnstile_console::data::{Output, Sink, input};
use turnstile_rig::{Fuse, Ram, Ring};
use turnstile_rng::{Source, serve};
use turnstile_virtio::device::Queue;
use turnstile_virtio::ring::Options;

const LENGTH: u64 = 0x4000;

/// Everything that a device reaches.
struct World(usize);

impl Sink for World {
    fn room(&self) -> usize {
        self.0
    }
    fn put(&mut self, bytes: &[u8]) {
        self.0 = self.0.checked_sub(bytes.len()).expect("there is room");
    }
}

impl Source for World {
    fn fill(&mut self, bytes: &mut [u8]) -> bool {
        bytes.fill(7);
        self.0 % 2 == 0
    }
}

impl Pages for World {
    fn release(&mut self, address: u64, length: u64) {
        assert!(address >= Ram::BASE && address + length <= Ram::BASE + LENGTH && address % PAGE == 0 && length % PAGE == 0);
    }
    fn is_settled(&mut self) -> bool {
        self.0 = self.0.wrapping_add(1);
        self.0 % 4 != 0
    }
    fn reclaim(&mut self, address: u64, length: u64) {
        self.release(address, length);
    }
}

fuzz_target!(|bytes: (u8, Vec<u8>, u64, Vec<u8>)| {
    let (options, memory, seed, steps) = bytes;
    let options = Options { indirect: options & 1 != 0, event_idx: options & 2 != 0 };
    let ram = Ram::new(LENGTH as usize, Fuse::default());
    let layout = Ring::new(&ram, Ram::BASE, 8, options).layout;
    ram.put(Ram::BASE, &memory[..memory.len().min(LENGTH as usize)]);
    ram.restless.set(seed);
    let port = Port { is_console: true, name: Name::new(b"a port"), size: (80, 25), is_open: true };
    let mut ports = Ports::new([Some(port); PORTS], State::default());
    let mut world = World(1000);
    let mut output = Output::default();
    let mut queue = Queue::new(layout, options, 16);
    for step in steps.into_iter().take(64) {
        ram.fuse.mend();
        let result = match step % 8 {
            0 => ports.listen(&mut queue, &ram, &mut ()).map(drop),
            1 => ports.speak(&mut queue, &ram, &mut ()).map(drop),
            2 => output.serve(&mut queue, &ram, &mut world, 9).map(drop),
            3 => input(&mut queue, &ram, &[1; 100], |_, _| {}).map(drop),
            4 => serve(&mut queue, &ram, &mut world, 9).map(drop),
            kind => {
                let kind = [Kind::Inflate, Kind::Deflate, Kind::Report][usize::from(kind - 5)];
                let balloon = Balloons::resume(kind, &ram, layout, options);
                balloon.and_then(|mut balloon| balloon.serve(&ram, &mut world, 0, 9)).map(drop)
            }
        };
        if result.is_err() {
            (output, queue) = (Output::default(), Queue::new(layout, options, 16));
        }
        world.0 = world.0.max(usize::from(step));
        assert!(ram.fuse.steps() < 20_000);
    }
});
