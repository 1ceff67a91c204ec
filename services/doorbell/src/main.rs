// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A device with doorbells, for measuring and for tests.
//!
//! | offset | register |
//! |---|---|
//! | 0 | how many doorbells it has seen since it was begun; writing here does nothing |
//! | 8 | the guest physical address of a block of [`Block`]'s words, if it has its VM's memory |
//! | 256 | rings: 0, for nothing; 1, to stay until the block's word `told` is not zero; 2, to do the work of the block |
//!
//! Work is to copy bytes, and to say their sum: once for each number in `wanted`, which is in `done` afterwards. What was being done
//! in a crash is done again.
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use turnstile_service_rt::{
    Answer, BY_VALUE, Doorbells, Event, GuestMemory, Memory, Outside, Service, kept, service,
};

kept! {
    /// Where the block is.
    static BLOCK: Kept<1>;
}

/// The words of a block, eight bytes each.
#[derive(Clone, Copy)]
#[repr(u64)]
enum Block {
    /// Not zero: who stays inside is to leave.
    Told = 0,
    /// Where bytes are to be copied from, and to, and how many.
    From = 8,
    To = 16,
    Length = 24,
    /// The number of this work, and that of the last that was done.
    Wanted = 32,
    Done = 40,
    /// The sum of the bytes; all ones if they are not all in memory.
    Sum = 48,
    /// Not zero while somebody stays.
    Inside = 56,
}

/// What rings the bells by their numbers, as bits.
const STAY: u64 = 1 << 1;
const WORK: u64 = 1 << 2;
/// The most bytes that are copied for one doorbell, which has a time limit.
const MOST: u64 = 64 << 10;
/// The memory of its VM.
static MEMORY: GuestMemory = GuestMemory::own();
/// Bytes that are copied at once.
const CHUNK: usize = 256;

struct Device {
    rung: u64,
}

service!(Device);

impl Service for Device {
    const NEW: Self = Self { rung: 0 };
    const DOORBELLS: Doorbells = Doorbells { first: 0x100, size: 4, by: BY_VALUE };

    #[inline(always)] // The way of each doorbell.
    fn event(&mut self, event: Event) -> Answer {
        let mut value = 0;
        match event {
            Event::Doorbell { queues, .. } => {
                self.rung += 1;
                if queues & (STAY | WORK) != 0 {
                    attend(queues);
                }
            }
            Event::Read { offset: 0, .. } => value = self.rung,
            Event::Read { offset: 8, .. } => value = BLOCK.get(0),
            Event::Write { offset: 8, value, .. } => BLOCK.set(0, value),
            _ => {}
        }
        Answer { value, ..Answer::default() }
    }
}

/// Does what the block says. If it is not in memory, that is nothing.
#[cold]
#[inline(never)]
fn attend(queues: u64) {
    let block = BLOCK.get(0);
    if queues & WORK != 0 {
        let _ = work(block);
    }
    if queues & STAY != 0 {
        let _ = stay(block);
    }
}

fn stay(block: u64) -> Result<(), Outside> {
    set(block, Block::Inside, 1)?;
    while word(block, Block::Told)? == 0 {
        // Without a hint that it spins: on AMD64 that is PAUSE, which is intercepted.
    }
    set(block, Block::Inside, 0)
}

fn work(block: u64) -> Result<(), Outside> {
    let wanted = word(block, Block::Wanted)?;
    // What it says comes after what it is about.
    MEMORY.fence();
    if word(block, Block::Done)? == wanted {
        return Ok(());
    }
    let [from, to, length] =
        [word(block, Block::From)?, word(block, Block::To)?, word(block, Block::Length)?];
    let sum = copy(from, to, length.min(MOST)).unwrap_or(u64::MAX);
    set(block, Block::Sum, sum)?;
    MEMORY.fence();
    set(block, Block::Done, wanted)
}

/// Copies bytes and returns their sum.
fn copy(from: u64, to: u64, length: u64) -> Result<u64, Outside> {
    let (mut sum, mut at) = (0, 0);
    let mut chunk = [0; CHUNK];
    while at < length {
        let some = &mut chunk[..(length - at).min(CHUNK as u64) as usize];
        MEMORY.read(from.wrapping_add(at), some)?;
        MEMORY.write(to.wrapping_add(at), some)?;
        sum += some.iter().map(|byte| u64::from(*byte)).sum::<u64>();
        at += some.len() as u64;
    }
    Ok(sum)
}

fn word(block: u64, word: Block) -> Result<u64, Outside> {
    let mut bytes = [0; 8];
    MEMORY.read(block.wrapping_add(word as u64), &mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

fn set(block: u64, word: Block, value: u64) -> Result<(), Outside> {
    MEMORY.write(block.wrapping_add(word as u64), &value.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_memory_bells_are_counted_alone() {
        let mut device = Device::NEW;
        for queues in [1, STAY, WORK, u64::MAX] {
            assert_eq!(device.event(Event::Doorbell { queues, now: 0 }), Answer::default());
        }
        device.event(Event::Write { device: 0, offset: 8, size: 8, value: 0x4000 });
        let mut read = |offset| device.event(Event::Read { device: 0, offset, size: 8 }).value;
        assert_eq!((read(0), read(8), read(16)), (4, 0x4000, 0));
        assert_eq!(work(0x4000), Err(Outside { address: 0x4020 }));
        assert_eq!(copy(0, 0, 0), Ok(0));
    }
}
