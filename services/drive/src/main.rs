// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A disk of the machine, or a partition of one, as a virtio block device behind PCI.
//!
//! The controller is the machine's; the hypervisor gives this service its registers and memory that both reach. Behind an IOMMU the controller reaches
//! the memory of the VM, too, and moves what a guest reads or writes itself. Otherwise that is copied once, between its memory and what both reach. What
//! was flushed stays when the power is lost, and when this service is started anew.
//!
//! | module | what |
//! |---|---|
//! | [`machine`] | what the program reaches |
//! | [`lent`] | the controller and its disk, of which the guest has a part |
//! | [`model`] | the block device |
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

use machine::Machine;
use model::{QUEUES, VECTORS};
use program::Program;

/// The words of the function.
const WORDS: usize = words::<QUEUES, VECTORS>();

kept! {
    /// The state of the function.
    static KEPT: Kept<41>;
}

const _: () = assert!(WORDS == 41, "the words of a function");

/// What the hypervisor gives.
struct Given {
    world: Runtime<WORDS>,
    device: Device,
    shared: DeviceMemory,
    stages: GuestMemory,
}

static GIVEN: Given = Given {
    world: Runtime::own(&KEPT),
    device: Device::own(),
    shared: Device::own().memory(),
    stages: GuestMemory::of_device(),
};

impl Machine for Given {
    type Memory = GuestMemory;
    type Bus = Self;

    #[inline(always)] // An address.
    fn world(&self) -> impl World<Memory = GuestMemory> {
        self.world
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
    fn on_bus(&self, address: u64, length: u64) -> Option<u64> {
        GuestMemory::own().on_bus(address, length)
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
        self.world.time()
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

    fn detach(&mut self, _: u64) -> Answer {
        answered(self.0.detach(&GIVEN))
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
