// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bus 0 of a guest: a host bridge, and devices of one function beside it.

use crate::absent;
use crate::address::Address;
use crate::bar::Space;
use crate::function::{Changed, Function};

/// Where an address leads: a device's BAR, and the offset in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The device.
    pub device: u8,
    /// The number of its base address register.
    pub bar: u8,
    /// Bytes from the register's address.
    pub offset: u64,
}

/// A bus with `N` places for devices, at most 32. The host bridge takes the first.
#[derive(Clone, Debug)]
pub struct Bus<const N: usize> {
    functions: [Option<Function>; N],
}

impl<const N: usize> Bus<N> {
    /// Makes a bus with a host bridge as device 0.
    pub fn new(bridge: Function) -> Self {
        const { assert!(N >= 1 && N <= 32, "a bus has 32 devices") };
        let mut functions = [const { None }; N];
        if let Some(first) = functions.first_mut() {
            *first = Some(bridge);
        }
        Self { functions }
    }

    /// Adds a device at the first free place, and returns which that is. `None` if the bus is full.
    pub fn add(&mut self, function: Function) -> Option<u8> {
        let (device, place) = (0u8..).zip(&mut self.functions).find(|(_, place)| place.is_none())?;
        *place = Some(function);
        Some(device)
    }

    /// Returns a device's function.
    pub fn function(&self, device: u8) -> Option<&Function> {
        self.functions.get(usize::from(device))?.as_ref()
    }

    /// Returns a device's function, to be changed.
    pub fn function_mut(&mut self, device: u8) -> Option<&mut Function> {
        self.functions.get_mut(usize::from(device))?.as_mut()
    }

    /// Returns the device that an address names.
    pub fn device(&self, address: Address) -> Option<u8> {
        let named = address.bus() == 0 && address.function() == 0;
        (named && self.function(address.device()).is_some()).then_some(address.device())
    }

    /// Reads `size` bytes (1, 2 or 4) of a function's configuration space. Where there is none, all bits are ones.
    pub fn read(&self, address: Address, offset: u16, size: u8) -> u32 {
        let function = self.device(address).and_then(|device| self.function(device));
        function.map_or(absent(size), |function| function.read(offset, size))
    }

    /// Writes `size` bytes (1, 2 or 4) of a function's configuration space. Returns the device and what has changed of it, if
    /// there is one.
    pub fn write(&mut self, address: Address, offset: u16, size: u8, value: u32) -> Option<(u8, Changed)> {
        let device = self.device(address)?;
        Some((device, self.function_mut(device)?.write(offset, size, value)))
    }

    /// Returns where an address of memory or I/O space leads. If a guest has given it to several BARs, to the first.
    pub fn find(&self, space: Space, address: u64) -> Option<Place> {
        (0u8..).zip(&self.functions).find_map(|(device, function)| {
            let (bar, offset) = function.as_ref()?.find(space, address)?;
            Some(Place { device, bar, offset })
        })
    }

    /// Resets all functions.
    pub fn reset(&mut self) {
        self.functions.iter_mut().flatten().for_each(Function::reset);
    }
}
