// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An Ethernet switch between VMs: a virtio network device behind PCI for each of up to eight members.
//!
//! What the configuration says of a member is a [`Port`](turnstile_service_rt::port::Port), in two words.
//!
//! If the hypervisor gives it a network card of the machine, the members reach the network behind that, too ([`uplink`]).
//!
//! A packet is copied once, from the sender's memory to the receiver's. It may be lost, or come twice, when the service begins anew.
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

mod members;
mod pairs;
mod port;
mod switch;
mod uplink;

#[cfg(test)]
mod tests;

use core::fmt::Write;

use turnstile_nic::card::Bus;
use turnstile_service_rt::{
    Answer, Attach, Device, DeviceMemory, Doorbells, Event, GuestMemory, GuestRings, Log, Service, kept,
    service,
};
use turnstile_service_virtio::{Runtime, World, answered, doorbells, words};

use members::{MEMBERS, Members, PORTS};
use port::{PLACES, QUEUES, VECTORS};
use switch::Switch;

/// The words of a function.
const WORDS: usize = words::<QUEUES, VECTORS>();

kept! {
    /// The state of all functions.
    static KEPT: Kept<1096>;
}

const _: () = assert!(WORDS * MEMBERS == 1096, "the words of all functions");

/// What the hypervisor gives.
struct All {
    /// The last one is that of the uplink's port, which has no function.
    worlds: [Runtime<1096>; PORTS],
    memories: [GuestMemory; PORTS],
    device: Device,
    shared: DeviceMemory,
}

static ALL: All = All::new();

impl All {
    const fn new() -> Self {
        let device = Device::own();
        let mut all = Self {
            worlds: [Runtime::own(&KEPT); PORTS],
            memories: [GuestMemory::of_device(); PORTS],
            device,
            shared: device.memory(),
        };
        all.memories[0] = GuestMemory::own();
        let mut member = 1;
        while member < MEMBERS {
            if let Some(world) = Runtime::of(&KEPT, member as u64, WORDS) {
                all.worlds[member] = world;
            }
            if let Some(memory) = GuestMemory::of(member as u64) {
                all.memories[member] = memory;
            }
            member += 1;
        }
        all
    }
}

impl Members for All {
    type Memory = GuestMemory;
    type Bus = Self;

    #[inline(always)] // A few moves.
    fn world(&self, member: usize) -> impl World<Memory = GuestMemory> {
        // Whoever is known to be one of all ports costs no comparison.
        let [first, ..] = &self.worlds;
        *self.worlds.get(member).unwrap_or(first)
    }

    #[inline(always)] // An address.
    fn memories(&self) -> &[GuestMemory; PORTS] {
        &self.memories
    }

    fn bus(&self) -> &Self {
        self
    }

    fn shared(&self) -> (u64, u64) {
        self.shared.range()
    }

    fn log(&self, text: &str) {
        // Writing there cannot fail.
        let _ = Log.write_str(text);
    }

    fn flush(&self) {
        turnstile_service_virtio::last::flush();
    }

    #[inline(always)] // A call.
    fn time(&self) -> u64 {
        turnstile_service_rt::time()
    }

    fn alarm(&self, at: u64) {
        turnstile_service_rt::alarm(at);
    }
}

impl Bus for All {
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

struct Program(Switch<GuestRings>);

service!(Program);

impl Service for Program {
    const NEW: Self = Self(Switch::new());
    const DOORBELLS: Doorbells = doorbells(PLACES as u32);

    fn attach(&mut self, attach: Attach) -> Answer {
        answered(self.0.attach(&ALL, attach))
    }

    fn detach(&mut self, member: u64) -> Answer {
        answered(self.0.detach(&ALL, member))
    }

    fn reset(&mut self) -> Answer {
        answered(self.0.reset(&ALL))
    }

    fn device(&mut self, _: [u64; 2]) -> Answer {
        answered(self.0.device(&ALL))
    }

    fn interrupt(&mut self, now: u64) -> Answer {
        answered(self.0.interrupt(&ALL, now))
    }

    #[inline(always)] // The way of each notification.
    fn event(&mut self, event: Event) -> Answer {
        answered(self.0.event(&ALL, event))
    }
}
