// SPDX-License-Identifier: Apache-2.0 OR MIT
//! POWER: the terminal and the wall clock, which guests reach by calls.

use crate::arch::Monitor;
use crate::arch::vm::Vm;
use crate::system::System;

impl Monitor for System {
    fn terminal_write(&self, vm: &'static Vm, characters: &[u8]) {
        if let Some(guest) = self.guest(vm) {
            guest.devices().terminal_write(vm, characters);
        }
    }

    fn terminal_read(&self, vm: &'static Vm, room: &mut [u8]) -> usize {
        self.guest(vm).map_or(0, |guest| guest.devices().terminal_read(vm, room))
    }

    fn clock(&self, vm: &'static Vm) -> u64 {
        self.guest(vm).map_or(0, |guest| guest.devices().clock())
    }

    fn set_clock(&self, vm: &'static Vm, nanoseconds: u64) {
        if let Some(guest) = self.guest(vm) {
            guest.devices().set_clock(nanoseconds);
        }
    }
}
