// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine's serial line: the firmware's first console, polled.

use core::sync::atomic::{AtomicBool, Ordering};

use turnstile_arch_common::console::Port;

use crate::cpu;
use crate::opal::{self, Token};

/// The firmware's first console.
pub struct Console;

/// The only one.
pub static CONSOLE: Console = Console;

/// The firmware's number of the console.
const TERMINAL: u64 = 0;
/// Output is dropped after this many tries: a missing or jammed console must not hang the hypervisor.
const PATIENCE: u32 = 100_000;
/// The console did not take the last bytes.
static JAMMED: AtomicBool = AtomicBool::new(false);

impl Console {
    /// Sends what the console takes of `bytes`; returns how many those are.
    fn send(&self, bytes: &[u8]) -> usize {
        let mut length = (bytes.len() as u64).to_be();
        let arguments = [TERMINAL, &raw mut length as u64, bytes.as_ptr() as u64];
        // SAFETY: it reads so many bytes at the address, and writes how many it has taken.
        let sent = unsafe { opal::call(Token::ConsoleWrite, &arguments) };
        // In between it answers that it is busy.
        sent.map_or(0, |_| u64::from_be(length) as usize).min(bytes.len())
    }
}

impl Port for Console {
    fn put(&self, byte: u8) {
        self.write(&[byte]);
    }

    /// Sends bytes, waiting for room. Once the console has not taken any for a long time, bytes are dropped until it does.
    fn write(&self, mut bytes: &[u8]) {
        let mut patience = if JAMMED.load(Ordering::Relaxed) { 1 } else { PATIENCE };
        while !bytes.is_empty() && patience > 0 {
            match self.send(bytes) {
                0 => {
                    opal::poll();
                    cpu::relax();
                    patience -= 1;
                }
                sent => bytes = &bytes[sent..],
            }
        }
        JAMMED.store(!bytes.is_empty(), Ordering::Relaxed);
    }

    fn flush(&self) {
        // SAFETY: it waits.
        let _ = unsafe { opal::call(Token::ConsoleFlush, &[TERMINAL]) };
    }

    fn get(&self) -> Option<u8> {
        let (mut byte, mut length) = (0u8, 1u64.to_be());
        let arguments = [TERMINAL, &raw mut length as u64, &raw mut byte as u64];
        // SAFETY: it writes a byte at most, and how many it has written.
        let read = unsafe { opal::call(Token::ConsoleRead, &arguments) };
        (read.is_ok() && u64::from_be(length) == 1).then_some(byte)
    }

    /// It is polled: there is no interrupt.
    fn enable_receive_interrupt(&self) {}
}
