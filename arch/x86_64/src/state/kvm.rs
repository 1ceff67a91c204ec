// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a vCPU's guest has asked for of KVM's paravirtual interface: the records in its memory. What is done with them is in
//! `vcpu::kvm`.

use core::num::NonZeroU64;

use turnstile_pvclock::{Memory, Request};
use turnstile_vapic::Fault;

use crate::memory::{GuestRam, user};

/// What a vCPU's guest has asked for. Off in each new life, and after an INIT.
#[derive(Debug, Default)]
pub struct State {
    /// What it wrote to the register of the wall clock.
    pub(crate) wall_clock: u64,
    /// Its clock.
    pub(crate) clock: Record,
    /// Its stolen time.
    pub(crate) steal: Record,
}

/// What a guest says of polling while its vCPU halts (MSR 4B564D05h).
#[derive(Debug)]
pub struct Polling {
    /// How many values the register takes: none where it is not offered. So one comparison checks both.
    values: u64,
    pub(crate) allowed: bool,
}

impl Polling {
    /// Makes it as it is after a reset, of a vCPU whose guest is `offered` the register or not.
    pub fn new(offered: bool) -> Self {
        Self { values: if offered { 2 } else { 0 }, allowed: true }
    }

    /// Takes what the guest wrote; false if that is a fault.
    #[inline(always)] // Hot: two instructions of a light exit.
    pub fn set(&mut self, value: u64) -> bool {
        let is_valid = value < self.values;
        if is_valid {
            self.allowed = value != 0;
        }
        is_valid
    }

    /// Goes back to the state after a reset.
    pub fn reset(&mut self) {
        self.allowed = true;
    }
}

/// A record in guest memory.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// What the guest wrote to the register.
    pub(crate) value: u64,
    pub(crate) place: Option<Place>,
    /// The version that is there.
    pub(crate) version: u32,
}

impl Record {
    /// Takes what the guest wrote to the register: a new place has `size` bytes.
    pub(crate) fn set(
        &mut self,
        ram: &GuestRam,
        value: u64,
        request: Option<Request>,
        size: u64,
    ) -> Result<(), Fault> {
        let place = match request.ok_or(Fault)? {
            Request::Off => None,
            Request::At(address) => Some(Place::find(ram, address, size).ok_or(Fault)?),
        };
        *self = Self { value, place, version: self.version };
        Ok(())
    }
}

/// Guest memory of a record, by the address at which the hypervisor reaches it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place(pub(crate) NonZeroU64);

impl Place {
    /// Finds `size` bytes at a guest physical address.
    pub(crate) fn find(ram: &GuestRam, address: u64, size: u64) -> Option<Self> {
        ram.host_to_keep(address, size).and_then(NonZeroU64::new).map(Self)
    }
}

impl Memory for Place {
    fn write_u32(&mut self, offset: u64, value: u32) {
        // SAFETY: inside what `find` has found, in this life of the VM: a new one begins with `State::default`.
        unsafe { user::write_u32(self.0.get() + offset, value) };
    }

    fn write_u64(&mut self, offset: u64, value: u64) {
        // SAFETY: as above.
        unsafe { user::write_u64(self.0.get() + offset, value) };
    }
}
