// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The line's reader, in both directions; whatever it was fed, it reads the second of two good frames.
#![no_main]

use libfuzzer_sys::fuzz_target;
use turnstile_link::{
    Command, Decoder, Direction, Down, DownLink, Exits, Item, MAX_BUCKETS, MAX_FRAME, Message, Up, UpLink,
    encode,
};

fn read<D: Direction>(data: &[u8], message: &impl Message) {
    let mut decoder = Decoder::<D>::new();
    for &byte in data {
        let _ = decoder.push(byte);
    }
    let mut buffer = [0; MAX_FRAME];
    let frame = encode(message, &mut buffer).expect("a short message fits");
    let mut last = false;
    for _ in 0..2 {
        last =
            frame.iter().filter(|&&byte| matches!(decoder.push(byte), Some(Item::Message(_)))).count() == 1;
    }
    assert!(last, "the reader stayed lost");
}

fuzz_target!(|data: &[u8]| {
    read::<UpLink>(data, &Up::Console { vm: 0, bytes: b"x" });
    let counts = [u64::MAX; MAX_BUCKETS];
    read::<UpLink>(data, &Up::Exits(Exits { vm: 0, vcpu: 0, reason: 0, total: 1, first: 0, counts }));
    read::<DownLink>(data, &Down::Command(Command::Statistics { vm: 0 }));
    read::<DownLink>(data, &Down::Input { vm: 0, bytes: b"x" });
});
