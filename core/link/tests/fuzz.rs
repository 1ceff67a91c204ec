// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Deterministic fuzz: a line on which bytes are changed, lost and doubled never makes the reader panic,
//! accept a frame that was not sent, or stay lost.

use turnstile_link::{Decoder, Down, DownLink, Item, MAX_FRAME, Up, UpLink, encode};

/// Marsaglia's xorshift64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

/// Damages about one byte in 64.
fn damage(line: &[u8], random: &mut Random) -> Vec<u8> {
    let mut damaged = Vec::with_capacity(line.len());
    for &byte in line {
        match random.below(256) {
            0 => {}
            1 => damaged.extend([byte, byte]),
            2 => damaged.push(byte ^ (1 << random.below(8))),
            3 => damaged.push(random.next() as u8),
            _ => damaged.push(byte),
        }
    }
    damaged
}

#[test]
fn a_damaged_line_never_gives_a_message_that_was_not_sent() {
    let mut random = Random(0x6c69_6e6b_2121_2121);
    let mut decoder = Decoder::<UpLink>::new();
    let (mut sent, mut received, mut buffer) = (0, 0, [0; MAX_FRAME]);
    for round in 0..20_000u32 {
        // The bytes say how many they are and which round they are from.
        let length = 4 + random.below(100);
        let mut bytes = vec![round as u8; length];
        bytes[..4].copy_from_slice(&round.to_le_bytes());
        let mut line =
            encode(&Up::Console { vm: length as u8, bytes: &bytes }, &mut buffer).unwrap().to_vec();
        line.extend(b"text\n");
        sent += 1;
        for byte in damage(&line, &mut random) {
            if let Some(Item::Message(message)) = decoder.push(byte) {
                let Up::Console { vm, bytes } = message else { panic!("{message:?} was never sent") };
                let number = u32::from_le_bytes(bytes[..4].try_into().unwrap());
                assert_eq!(usize::from(vm), bytes.len());
                assert!(number <= round && round - number < 4, "{number} in round {round}");
                assert!(bytes[4..].iter().all(|&byte| byte == number as u8));
                received += 1;
            }
        }
    }
    // A message spans about 65 bytes; at one damaged byte in 64 at least a fourth must get through.
    assert!(received > sent / 4, "{received} of {sent} received");
    assert!(decoder.damaged() > sent / 8 && decoder.unknown() == 0);

    // And the reader is not lost: the second of two good frames is read in any state.
    for _ in 0..2 {
        let frame = encode(&Up::Done { crashed: 7 }, &mut buffer).unwrap();
        received =
            frame.iter().filter(|&&byte| matches!(decoder.push(byte), Some(Item::Message(_)))).count() as u32;
    }
    assert_eq!(received, 1);
}

#[test]
fn random_bytes_never_panic() {
    let mut random = Random(0x7261_6e64_6f6d_2121);
    let mut down = Decoder::<DownLink>::new();
    let mut up = Decoder::<UpLink>::new();
    let mut buffer = [0; MAX_FRAME];
    for _ in 0..200_000 {
        // Delimiters and starts are frequent, so that frames of all lengths are opened and closed.
        let byte = [0, 0xfd, random.next() as u8, random.next() as u8][random.below(4)];
        let _ = down.push(byte);
        let _ = up.push(byte);
        if random.below(100) == 0 {
            let frame = encode(&Down::Input { vm: byte, bytes: &[byte; 9] }, &mut buffer).unwrap();
            let cut = random.below(frame.len() + 1);
            for &byte in frame.iter().take(cut) {
                let _ = down.push(byte);
            }
        }
    }
    assert!(down.damaged() > 100 && up.damaged() > 100);
}
