// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a function reaches.

use turnstile_pci::msix::Message;
use turnstile_service_rt::{GuestMemory, Kept, decode, time};
use turnstile_virtio::memory::Memory;

use crate::last;

/// What a function reaches. Tests have worlds of their own.
pub trait World {
    /// The memory of the VM.
    type Memory: Memory;

    /// The memory of the VM.
    fn memory(&self) -> &Self::Memory;

    /// Sends a message-signalled interrupt: at the latest when the event has been handled.
    fn message(&self, message: Message);

    /// Sends the last message now.
    fn flush(&self);

    /// Decodes a BAR at other addresses; with size zero nowhere. False if it cannot be there: then it is nowhere.
    fn decode(&self, bar: u8, address: u64, size: u64) -> bool;

    /// The time in nanoseconds.
    fn time(&self) -> u64;

    /// Returns a word that is kept; zero if there is none of this number.
    fn get(&self, at: usize) -> u64;

    /// Writes a word that is kept: at once, and in the order of the program.
    fn set(&self, at: usize, word: u64);
}

/// The world of a member's function, with the words that the service keeps.
#[derive(Clone, Copy)]
pub struct Runtime<const N: usize> {
    kept: &'static Kept<N>,
    /// The first of them that is this member's.
    first: usize,
    member: u64,
    memory: GuestMemory,
}

impl<const N: usize> Runtime<N> {
    /// The world of a service with one member.
    pub const fn own(kept: &'static Kept<N>) -> Self {
        Self { kept, first: 0, member: 0, memory: GuestMemory::own() }
    }

    /// The world of a member, which has so many `words` of those that are kept. `None` if there can be no such member.
    pub const fn of(kept: &'static Kept<N>, member: u64, words: usize) -> Option<Self> {
        match GuestMemory::of(member) {
            Some(memory) => Some(Self { kept, first: member as usize * words, member, memory }),
            None => None,
        }
    }
}

impl<const N: usize> World for Runtime<N> {
    type Memory = GuestMemory;

    #[inline(always)] // An address.
    fn memory(&self) -> &GuestMemory {
        &self.memory
    }

    #[inline(always)] // A few loads and stores.
    fn message(&self, message: Message) {
        last::post(self.member, message);
    }

    fn flush(&self) {
        last::flush();
    }

    fn decode(&self, bar: u8, address: u64, size: u64) -> bool {
        decode(self.member, bar, address, size)
    }

    #[inline(always)] // A call.
    fn time(&self) -> u64 {
        time()
    }

    #[inline(always)] // A load.
    fn get(&self, at: usize) -> u64 {
        self.kept.get(self.first + at)
    }

    #[inline(always)] // A store.
    fn set(&self, at: usize, word: u64) {
        self.kept.set(self.first + at, word);
    }
}
