// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A virtio memory balloon behind PCI: the memory that the guest reports to be free, or gives when it is asked, goes back to the pool that the VM's
//! memory comes from.
//!
//! The guest's driver uses none of it before its request is completed, and that is completed when nobody reaches it any more.
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

mod model;

#[cfg(test)]
mod tests;

use turnstile_service_rt::{
    Answer, Attach, Doorbells, Event, Service, is_released, keep, kept, release, service,
};
use turnstile_service_virtio::{Runtime, Virtio, answered, doorbells, words};

use model::{Balloon, Giver, QUEUES, VECTORS, attach, event};

kept! {
    /// The state of the function.
    static KEPT: Kept<65>;
}

kept! {
    /// For how many pages the driver was asked.
    static WANTED: Kept<1>;
}

const _: () = assert!(words::<QUEUES, VECTORS>() == 65, "the words of a function");

static WORLD: Runtime<65> = Runtime::own(&KEPT);

/// The hypervisor, which has the pool.
struct Pool;

impl Giver for Pool {
    fn give(&mut self, address: u64, length: u64) {
        // What it refuses stays with the guest, whose report has then no effect.
        let _ = release(address, length);
    }

    fn is_settled(&mut self) -> bool {
        is_released()
    }

    fn keep(&mut self) {
        keep();
    }

    fn wanted(&self) -> u64 {
        WANTED.get(0)
    }

    fn want(&mut self, pages: u64) {
        WANTED.set(0, pages);
    }
}

struct Function(Virtio<QUEUES, VECTORS, Balloon<Pool>>);

service!(Function);

impl Service for Function {
    const NEW: Self = Self(Virtio::new(Balloon::new(Pool)));
    const DOORBELLS: Doorbells = doorbells(QUEUES as u32);

    fn attach(&mut self, Attach { kept, bars, .. }: Attach) -> Answer {
        answered(attach(&mut self.0, &WORLD, kept, bars))
    }

    fn event(&mut self, received: Event) -> Answer {
        answered(event(&mut self.0, &WORLD, received))
    }
}
