// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The devices of a partition that exits do not handle themselves: its terminal, which it reaches by calls (LoPAPR 16.4.2), a
//! serial port in memory, and its clock.

use heapless::Deque;
use turnstile_devices::{BACKLOG, Credit, Uart16550};
use turnstile_machine::pseries::{SERIAL, TERMINAL_SOURCE};

use crate::arch::time;
use crate::arch::vm::Vm;
use crate::line;

/// The bits of an address that say which register of the serial port it is: a mask, because compilers fold a difference into
/// each comparison with a register's offset, as a constant of 64 bits.
const WITHIN: u64 = SERIAL.size - 1;
const _: () = assert!(SERIAL.size.is_power_of_two() && SERIAL.base & WITHIN == 0);

/// The devices of one VM.
pub struct Devices {
    /// What was typed, until the guest asks for it.
    typed: Deque<u8, BACKLOG>,
    /// What whoever types may send.
    credit: Credit,
    serial: Uart16550,
    /// What the guest has added to the machine's clock, in nanoseconds.
    offset: u64,
}

impl Devices {
    /// Makes them in their reset state.
    pub fn new() -> Self {
        Self { typed: Deque::new(), credit: Credit::new(), serial: Uart16550::new(), offset: 0 }
    }

    /// Reads a device register; `None` if there is no device.
    pub fn read(&mut self, _: &'static Vm, address: u64, size: u8) -> Option<u64> {
        SERIAL.contains(address).then(|| self.serial.read(address & WITHIN, size))
    }

    /// Writes a device register; false if there is no device.
    pub fn write(&mut self, vm: &'static Vm, address: u64, size: u8, value: u64) -> bool {
        if !SERIAL.contains(address) {
            return false;
        }
        if let Some(byte) = self.serial.write(address & WITHIN, size, value) {
            line::console(vm, &[byte]);
        }
        true
    }

    /// Lets clocks go on: no device waits for a time.
    pub fn tick(&mut self, _: &'static Vm) {}

    /// Takes what was typed into the VM's console. Bytes for which there was no room are lost, as on a real line.
    pub fn receive(&mut self, vm: &'static Vm, bytes: &[u8]) {
        for byte in bytes {
            let _ = self.typed.push_back(*byte);
        }
        self.credit.arrived(bytes.len());
        vm.board.raise(vm, TERMINAL_SOURCE);
    }

    /// Gives back the room of what was typed and not read: the VM has stopped.
    pub fn drop_typed(&mut self, vm: &'static Vm) {
        line::room(vm, self.credit.freed(0));
    }

    /// Returns how many bytes may be typed if none are under way.
    pub fn room(&self) -> u16 {
        self.credit.room()
    }

    /// Writes characters to the terminal.
    pub fn terminal_write(&mut self, vm: &'static Vm, characters: &[u8]) {
        line::console(vm, characters);
    }

    /// Moves what was typed to `room`; returns how many characters those are. What is left comes with another interrupt.
    pub fn terminal_read(&mut self, vm: &'static Vm, room: &mut [u8]) -> usize {
        let mut count = 0;
        while let Some(place) = room.get_mut(count)
            && let Some(byte) = self.typed.pop_front()
        {
            *place = byte;
            count += 1;
        }
        line::room(vm, self.credit.freed(self.typed.len()));
        if !self.typed.is_empty() {
            vm.board.raise(vm, TERMINAL_SOURCE);
        }
        count
    }

    /// Returns the guest's wall clock: nanoseconds since 1970.
    pub fn clock(&self) -> u64 {
        time::wall_nanoseconds().wrapping_add(self.offset)
    }

    /// Sets the guest's wall clock.
    pub fn set_clock(&mut self, nanoseconds: u64) {
        self.offset = nanoseconds.wrapping_sub(time::wall_nanoseconds());
    }
}
