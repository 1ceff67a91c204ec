// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine's serial line: the firmware's first console, polled.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use arrayvec::ArrayVec;
use spin::Mutex;
use turnstile_arch_common::console::Port;

use crate::board::opal::{self, Token};
use crate::cpu;

/// The firmware's first console.
pub struct Console;

/// The only one.
pub static CONSOLE: Console = Console;

/// The firmware's number of the console.
const TERMINAL: u64 = 0;
/// Output is dropped after this many tries: a missing or jammed console must not hang the hypervisor.
const PATIENCE: u32 = 100_000;
/// What was read of the console, the next byte last.
static TYPED: Mutex<ArrayVec<u8, 64>> = Mutex::new(ArrayVec::new_const());
/// Looks at the console.
static POLLS: AtomicU32 = AtomicU32::new(0);
/// The firmware is to be let work once in so many of them: it asks for that every two seconds (`ibm,heartbeat-ms`).
const POLLS_TO_HEARTBEAT: u32 = 64;
/// Something was found at the console since [`period`] was asked.
static FLOWS: AtomicBool = AtomicBool::new(false);
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
        let mut typed = TYPED.lock();
        if typed.is_empty() {
            let mut bytes = [0u8; 64];
            let mut length = (bytes.len() as u64).to_be();
            let arguments = [TERMINAL, &raw mut length as u64, bytes.as_mut_ptr() as u64];
            // SAFETY: it writes so many bytes at most, and how many it has written.
            if unsafe { opal::call(Token::ConsoleRead, &arguments) }.is_ok() {
                let read = (u64::from_be(length) as usize).min(bytes.len());
                typed.extend(bytes[..read].iter().rev().copied());
                FLOWS.fetch_or(read > 0, Ordering::Relaxed);
            }
        }
        typed.pop()
    }

    /// It is polled: there is no interrupt.
    fn enable_receive_interrupt(&self) {}

    fn mask_receive_interrupt(&self, _: bool) {}
}

/// What [`crate::Monitor::interrupt`] is told when the console may have been typed at.
pub const INTERRUPT: u32 = 0;

/// Nanoseconds between two looks at the console.
const PERIOD: u64 = 20_000_000;
/// The same while something is found there: its FIFO holds 16 bytes at most, and what is pasted is many of them.
const FLOWING: u64 = 1_000_000;

/// Nanoseconds until the next look at the console, to be asked for each look.
pub fn period() -> u64 {
    if FLOWS.swap(false, Ordering::Relaxed) { FLOWING } else { PERIOD }
}

/// Lets the firmware work now and then: each time that the console is looked at.
pub(crate) fn let_firmware_work() {
    if POLLS.fetch_add(1, Ordering::Relaxed).is_multiple_of(POLLS_TO_HEARTBEAT) {
        opal::poll();
    }
}
