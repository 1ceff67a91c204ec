// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a function reaches.

use turnstile_pci::msix::Message;
use turnstile_service_rt::{GuestMemory, Kept, decode, message, time};
use turnstile_virtio::memory::Memory;

/// What a function reaches. Tests have worlds of their own.
pub trait World {
    /// The memory of the VM.
    type Memory: Memory;

    /// The memory of the VM.
    fn memory(&self) -> &Self::Memory;

    /// Sends a message-signalled interrupt.
    fn message(&self, message: Message);

    /// Decodes a BAR at other addresses; with size zero nowhere. False if it cannot be there: then it is nowhere.
    fn decode(&self, bar: u8, address: u64, size: u64) -> bool;

    /// The time in nanoseconds.
    fn time(&self) -> u64;

    /// Returns a word that is kept; zero if there is none of this number.
    fn get(&self, at: usize) -> u64;

    /// Writes a word that is kept: at once, and in the order of the program.
    fn set(&self, at: usize, word: u64);
}

/// The world of a service, with the words that it keeps.
#[derive(Clone, Copy)]
pub struct Runtime<const N: usize>(pub &'static Kept<N>);

impl<const N: usize> World for Runtime<N> {
    type Memory = GuestMemory;

    #[inline(always)] // It has no size.
    fn memory(&self) -> &GuestMemory {
        &GuestMemory
    }

    #[inline(always)] // A call.
    fn message(&self, Message { address, data }: Message) {
        // What a driver has written where nothing is reaches nobody, as on a bus.
        let _ = message(address, data);
    }

    fn decode(&self, bar: u8, address: u64, size: u64) -> bool {
        decode(bar, address, size)
    }

    #[inline(always)] // A call.
    fn time(&self) -> u64 {
        time()
    }

    #[inline(always)] // A load.
    fn get(&self, at: usize) -> u64 {
        self.0.get(at)
    }

    #[inline(always)] // A store.
    fn set(&self, at: usize, word: u64) {
        self.0.set(at, word);
    }
}
