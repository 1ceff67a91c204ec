// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The devices of a VM that exits do not handle themselves: its terminal (PAPR 16.7, virtual terminals) and its clock. What
//! is typed is kept until the guest asks for it.

use heapless::Deque;

use crate::arch::time;
use crate::arch::vm::Vm;
use crate::line;

/// Characters that wait for a guest that does not read.
const TYPED: usize = 1024;

/// The devices.
pub struct Devices {
    typed: Deque<u8, TYPED>,
    /// What the guest has added to the machine's clock, in nanoseconds.
    offset: u64,
}

impl Devices {
    /// Makes them in their reset state.
    pub fn new() -> Self {
        Self { typed: Deque::new(), offset: 0 }
    }

    /// Reads a device register: there is none.
    pub fn read(&mut self, _: &'static Vm, _: u64, _: u8) -> Option<u64> {
        None
    }

    /// Writes a device register: there is none.
    pub fn write(&mut self, _: &'static Vm, _: u64, _: u8, _: u64) -> bool {
        false
    }

    /// Lets clocks go on: nothing, they are counted.
    pub fn tick(&mut self, _: &'static Vm) {}

    /// Takes what was typed; what there is no room for is lost.
    pub fn receive(&mut self, _: &'static Vm, bytes: &[u8]) {
        for &byte in bytes {
            let _ = self.typed.push_back(byte);
        }
    }

    /// Writes to the terminal.
    pub fn terminal_put(&mut self, vm: &'static Vm, characters: &[u8]) {
        characters.iter().for_each(|&byte| line::console(vm, byte));
    }

    /// Moves what was typed to `room`; returns how many characters those are.
    pub fn terminal_get(&mut self, room: &mut [u8; 16]) -> usize {
        let mut count = 0;
        while let Some(slot) = room.get_mut(count)
            && let Some(byte) = self.typed.pop_front()
        {
            *slot = byte;
            count += 1;
        }
        count
    }

    /// Returns the wall clock: nanoseconds since 1970.
    pub fn clock(&self) -> u64 {
        time::wall_nanoseconds().wrapping_add(self.offset)
    }

    /// Sets the wall clock.
    pub fn set_clock(&mut self, nanoseconds: u64) {
        self.offset = nanoseconds.wrapping_sub(time::wall_nanoseconds());
    }
}
