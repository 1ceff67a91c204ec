// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The console: the virtual terminal that the device tree names, by H_PUT_TERM_CHAR and H_GET_TERM_CHAR (LoPAR, section
//! 16.6), polled.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub use turnstile_guests_common::console::Console;

use turnstile_guests_common::console::{self, Block};

use crate::hcall;
use crate::platform::platform;

/// Bytes of one call.
const CHUNK: usize = console::BLOCK;
/// How often a call is repeated while the terminal is busy.
const PATIENCE: u32 = 1_000_000;

/// Writes bytes; what a terminal does not take after long, is lost.
pub fn write(bytes: Block) {
    let bytes = bytes.as_slice();
    let mut block = [0; CHUNK];
    for (slot, byte) in block.iter_mut().zip(bytes) {
        *slot = *byte;
    }
    let [first, second] = halves(block);
    for _ in 0..PATIENCE {
        // H_BUSY is 1, and the kinds of "long busy" are 9900 and up.
        if hcall::call(hcall::PUT_TERM_CHAR, [platform().terminal, bytes.len() as u64, first, second]) <= 0 {
            return;
        }
    }
}

fn halves(block: [u8; CHUNK]) -> [u64; 2] {
    let value = u128::from_be_bytes(block);
    [(value >> 64) as u64, value as u64]
}

/// Bytes that were received and not asked for yet: their number, and the bytes, first in the highest.
static RECEIVED: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

/// Returns a received byte, if there is one. Only for one CPU.
pub fn get() -> Option<u8> {
    let [count, first, second] = &RECEIVED;
    if count.load(Relaxed) == 0 {
        let (status, [len, a, b, _]) = hcall::call4(hcall::GET_TERM_CHAR, [platform().terminal, 0, 0, 0]);
        if status != hcall::SUCCESS || len == 0 || len > CHUNK as u64 {
            return None;
        }
        count.store(len, Relaxed);
        first.store(a, Relaxed);
        second.store(b, Relaxed);
    }
    count.fetch_sub(1, Relaxed);
    let bytes = u128::from(first.load(Relaxed)) << 64 | u128::from(second.load(Relaxed));
    let rest = bytes << 8;
    first.store((rest >> 64) as u64, Relaxed);
    second.store(rest as u64, Relaxed);
    Some((bytes >> 120) as u8)
}

/// Writes one byte.
pub fn put(byte: u8) {
    let mut block = Block::new(0);
    block.push(byte);
    write(block);
}
