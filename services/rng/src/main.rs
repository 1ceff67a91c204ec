// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random numbers as a virtio entropy device behind PCI.
//!
//! They are those of the CPU's own generator, which the hypervisor asks. Nothing is kept of them: what a VM has been given, nobody else
//! gets, and not this service again.
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

mod model;

#[cfg(test)]
mod tests;

use turnstile_service_rt::{Answer, Attach, Doorbells, Event, Service, kept, random, service};
use turnstile_service_virtio::{Runtime, Virtio, answered, doorbells, words};

use model::{Entropy, Generator, QUEUES, VECTORS};

kept! {
    /// The state of the function.
    static KEPT: Kept<41>;
}

const _: () = assert!(words::<QUEUES, VECTORS>() == 41, "the words of a function");

static WORLD: Runtime<41> = Runtime::own(&KEPT);

/// The CPU's generator.
struct Cpu;

impl Generator for Cpu {
    fn draw(&mut self) -> Option<u64> {
        random()
    }
}

struct Function(Virtio<QUEUES, VECTORS, Entropy<Cpu>>);

service!(Function);

impl Service for Function {
    const NEW: Self = Self(Virtio::new(Entropy::new(Cpu)));
    const DOORBELLS: Doorbells = doorbells(QUEUES as u32);

    fn attach(&mut self, Attach { kept, bars, .. }: Attach) -> Answer {
        answered(self.0.attach(&WORLD, kept, bars))
    }

    fn event(&mut self, event: Event) -> Answer {
        answered(self.0.event(&WORLD, event))
    }
}
