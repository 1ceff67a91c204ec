// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A disk of the machine, or partitions of one: a virtio block device behind PCI for each of up to eight members.
//!
//! The controller is the machine's; the hypervisor gives this service its registers and memory that both reach. Behind an IOMMU the controller
//! reaches the memory of a VM that has all of it, too, and moves what its guest reads or writes itself. Otherwise that is copied once, between
//! a member's memory and what both reach. What was flushed stays when the power is lost, and when this service is started anew.
//!
//! | module | what |
//! |---|---|
//! | [`machine`] | what the program reaches |
//! | [`lent`] | the controller and its disk, of which each member has a part |
//! | [`model`] | the block device of a member |
//! | [`program`] | events and their answers |
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

mod lent;
mod machine;
mod model;
mod program;

#[cfg(test)]
mod tests;

use core::fmt::{self, Write};

use turnstile_drive::any::AnyDrive;
use turnstile_service_rt::{
    Answer, Attach, Device, DeviceMemory, Doorbells, Event, GuestMemory, GuestRings, Log, Service, alarm,
    kept, service,
};
use turnstile_service_virtio::{Runtime, World, answered, doorbells, words};
use turnstile_virtio::driver::Bus;

use machine::{MEMBERS, Machine};
use model::{QUEUES, VECTORS};
use program::Program;

/// The words of a function.
const WORDS: usize = words::<QUEUES, VECTORS>();

kept! {
    /// The state of all functions.
    static KEPT: Kept<328>;
}

const _: () = assert!(WORDS * MEMBERS == 328, "the words of all functions");

/// What the hypervisor gives.
struct Given {
    worlds: [Runtime<328>; MEMBERS],
    device: Device,
    shared: DeviceMemory,
    stages: GuestMemory,
}

static GIVEN: Given = Given {
    worlds: worlds(),
    device: Device::own(),
    shared: Device::own().memory(),
    stages: GuestMemory::of_device(),
};

const fn worlds() -> [Runtime<328>; MEMBERS] {
    let mut worlds = [Runtime::own(&KEPT); MEMBERS];
    let mut member = 1;
    while member < MEMBERS {
        if let Some(world) = Runtime::of(&KEPT, member as u64, WORDS) {
            worlds[member] = world;
        }
        member += 1;
    }
    worlds
}

impl Given {
    #[inline(always)] // An address.
    fn of(&self, member: usize) -> &Runtime<328> {
        let [first, ..] = &self.worlds;
        self.worlds.get(member).unwrap_or(first)
    }
}

impl Machine for Given {
    type Memory = GuestMemory;
    type Bus = Self;

    #[inline(always)] // A few moves.
    fn world(&self, member: usize) -> impl World<Memory = GuestMemory> {
        *self.of(member)
    }

    #[inline(always)] // An address.
    fn memory(&self, member: usize) -> &GuestMemory {
        self.of(member).memory()
    }

    #[inline(always)] // A call.
    fn time(&self) -> u64 {
        turnstile_service_rt::time()
    }

    fn bus(&self) -> &Self {
        self
    }

    fn shared(&self) -> &GuestMemory {
        &self.stages
    }

    fn range(&self) -> (u64, u64) {
        self.shared.range()
    }

    #[inline(always)] // On the path of every buffer.
    fn on_bus(&self, member: usize, address: u64, length: u64) -> Option<u64> {
        self.of(member).memory().on_bus(address, length)
    }

    fn log(&self, line: fmt::Arguments<'_>) {
        // Writing there cannot fail.
        let _ = Log.write_fmt(line);
    }

    fn alarm(&self, at: u64) {
        alarm(at);
    }
}

impl Bus for Given {
    type Function = Device;
    type Memory = DeviceMemory;

    fn function(&self) -> &Device {
        &self.device
    }

    fn memory(&self) -> &DeviceMemory {
        &self.shared
    }

    fn time(&self) -> u64 {
        turnstile_service_rt::time()
    }
}

struct Disk(Program<Given, AnyDrive, GuestRings>);

service!(Disk);

impl Service for Disk {
    const NEW: Self = Self(Program::NEW);
    const DOORBELLS: Doorbells = doorbells(QUEUES as u32);

    fn attach(&mut self, attach: Attach) -> Answer {
        answered(self.0.attach(&GIVEN, attach))
    }

    fn detach(&mut self, member: u64) -> Answer {
        answered(self.0.detach(&GIVEN, member))
    }

    fn reset(&mut self) -> Answer {
        answered(self.0.reset(&GIVEN))
    }

    fn device(&mut self, settings: [u64; 2]) -> Answer {
        answered(self.0.device(&GIVEN, settings))
    }

    fn interrupt(&mut self, now: u64) -> Answer {
        answered(self.0.interrupt(&GIVEN, now))
    }

    #[inline(always)] // The way of each notification.
    fn event(&mut self, event: Event) -> Answer {
        answered(self.0.event(&GIVEN, event))
    }
}
