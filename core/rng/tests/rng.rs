// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests for random bytes.

use proptest::prelude::*;
use turnstile_rig::{Fuse, Guest, Ram, Random, Request};
use turnstile_rng::{BUFFERS, MOST, Source, serve};
use turnstile_virtio::device::{Queue, Turn};
use turnstile_virtio::ring::Options;
use turnstile_virtio::violation::Violation;

const OPTIONS: Options = Options { indirect: true, event_idx: true };

/// Numbers that say which byte they are, as long as there are some.
struct Counter(u64, u64);

impl Source for Counter {
    fn fill(&mut self, bytes: &mut [u8]) -> bool {
        if self.1 < bytes.len() as u64 {
            return false;
        }
        self.1 -= bytes.len() as u64;
        bytes.iter_mut().for_each(|byte| {
            self.0 += 1;
            *byte = self.0 as u8;
        });
        true
    }
}

fn ask(random: &mut Random, length: u32) -> Request {
    Request { writable: random.cut(length, 4), indirect: true, ..Request::default() }
}

proptest! {
    /// Each request gets bytes of its own, as many as it has room for, up to 256; over kills at any step, too.
    #[test]
    fn requests_get_bytes(seed in 1u64..) {
        let random = &mut Random(seed);
        let ram = Ram::new(0x8_0000, Fuse::default());
        let mut guest = Guest::new(&ram, Ram::BASE, 16, OPTIONS, 0x1000);
        let mut source = Counter(0, 5000);
        let mut queue = Queue::new(guest.ring.layout, OPTIONS, BUFFERS);
        let (mut asked, mut done) = (Vec::new(), 0);
        for _ in 0..100 {
            let length = [0, 1, 8, 64, 256, 300][random.below(6) as usize];
            if guest.ask(&ram, &ask(random, length)).is_some() {
                asked.push(length);
            }
            ram.fuse.arm(random.below(60));
            let result = serve(&mut queue, &ram, &mut source, 1 + random.below(20) as u32);
            let blown = ram.fuse.is_blown();
            ram.fuse.mend();
            if blown {
                queue = Queue::resume(&ram, guest.ring.layout, OPTIONS, BUFFERS).unwrap();
            } else {
                prop_assert!(result.is_ok());
            }
            for reply in guest.take(&ram) {
                prop_assert_eq!(reply.number, done);
                prop_assert_eq!(reply.written, asked[done].min(MOST as u32));
                let bytes = &reply.bytes[..reply.written as usize];
                prop_assert!(bytes.windows(2).all(|pair| pair[1] == pair[0].wrapping_add(1)));
                prop_assert!(reply.bytes[reply.written as usize..].iter().all(|&byte| byte == 0xee));
                done += 1;
            }
        }
        source.1 = 1 << 20;
        while serve(&mut queue, &ram, &mut source, 8).unwrap().again {}
        done += guest.take(&ram).len();
        prop_assert_eq!(done, asked.len());
    }

    #[test]
    fn hostile_rings_are_answered(seed in 1u64..) {
        let random = &mut Random(seed);
        let ram = Ram::new(0x8_0000, Fuse::default());
        let mut guest = Guest::new(&ram, Ram::BASE, 8, OPTIONS, 0x1000);
        let mut queue = Queue::new(guest.ring.layout, OPTIONS, BUFFERS);
        for _ in 0..8 {
            let _ = guest.ask(&ram, &ask(random, 64));
        }
        for _ in 0..40 {
            ram.disturb(random, 0x180);
            if serve(&mut queue, &ram, &mut Counter(0, 1 << 40), 10).is_err() {
                queue = Queue::resume(&ram, guest.ring.layout, OPTIONS, BUFFERS).unwrap();
            }
            prop_assert!(ram.fuse.steps() < 10 * 100, "bounded: {}", ram.fuse.steps());
        }
    }
}

#[test]
fn a_source_that_is_empty_lets_requests_wait() {
    let ram = Ram::new(0x8_0000, Fuse::default());
    let mut guest = Guest::new(&ram, Ram::BASE, 8, OPTIONS, 0x1000);
    let mut queue = Queue::new(guest.ring.layout, OPTIONS, BUFFERS);
    guest.ask(&ram, &ask(&mut Random(1), 64));
    assert_eq!(serve(&mut queue, &ram, &mut Counter(0, 10), 9), Ok(Turn { interrupt: false, again: false }));
    assert!(guest.take(&ram).is_empty());
    assert_eq!(serve(&mut queue, &ram, &mut Counter(0, 64), 9), Ok(Turn { interrupt: true, again: false }));
    assert_eq!(guest.take(&ram).len(), 1);
    guest.ring.offer(&ram, 1, 9, 2);
    assert_eq!(serve(&mut queue, &ram, &mut Counter(0, 64), 9), Err(Violation::Head(9)));
}
