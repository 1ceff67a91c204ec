// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Deterministic fuzz: whatever a kernel's first bytes are, parsing and placing neither panics nor places
//! anything outside RAM or upon something else.

use turnstile_machine::FileKind;
use turnstile_machine::image::parse;
use turnstile_machine::{GuestMachine, layout};

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

fn valid() -> Vec<u8> {
    let mut file = vec![0; 512];
    file[..2].copy_from_slice(b"MZ");
    file[16..24].copy_from_slice(&0x8000u64.to_le_bytes());
    file[24] = 0xa;
    file[56..60].copy_from_slice(b"ARM\x64");
    file[60] = 64;
    file[64..68].copy_from_slice(b"PE\0\0");
    file[70] = 2;
    file[84] = 160;
    file
}

#[test]
fn mutated_headers_never_panic_and_never_overlap() {
    let mut random = Random(0x7475_726e_7374_696c);
    let (mut accepted, mut placed) = (0, 0);
    for _ in 0..20_000 {
        let mut file = valid();
        for _ in 0..random.below(4) {
            // Half of the changes hit the header's own fields.
            let span = if random.below(2) == 0 { 96 } else { file.len() };
            let at = random.below(span);
            file[at] =
                if random.below(2) == 0 { random.next() as u8 } else { file[at] ^ (1 << random.below(8)) };
        }
        if random.below(8) == 0 {
            file.truncate(random.below(512));
        }
        let _ = FileKind::of(&file);
        let Ok(header) = parse(&file) else { continue };
        accepted += 1;

        let map = GuestMachine::ALL[random.below(2)].map();
        let memory = (2 + random.next() % 64) << 21;
        let initrd = (random.below(2) == 0).then(|| random.next() % (128 << 20));
        let Ok(layout) = layout(map, memory, &header, file.len() as u64, initrd) else { continue };
        placed += 1;
        let ram = map.ram(memory);
        let pieces =
            [layout.kernel.clone(), layout.dtb.clone(), layout.initrd.unwrap_or(ram.end()..ram.end())];
        assert!(pieces[0].start >= ram.base && pieces[2].end <= ram.end());
        assert!(pieces.iter().all(|piece| piece.start <= piece.end));
        assert!(pieces[0].end <= pieces[1].start && pieces[1].end <= pieces[2].start);
        assert!(pieces[0].end - pieces[0].start >= header.image_size.max(file.len() as u64));
        assert!(pieces[1].start % 8 == 0 && pieces[1].start >> 21 == (pieces[1].end - 1) >> 21);
    }
    // The mutations must not all fail at the same first check.
    assert!(accepted > 2_000 && placed > 500, "{accepted} accepted, {placed} placed");
}
