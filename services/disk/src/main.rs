// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A disk in RAM as a virtio block device behind PCI.
//!
//! The disk is the memory that the configuration gives this service, with its name and whether it can be written. It stays when the VM
//! starts anew, and when this service does.
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

#[cfg(test)]
mod tests;

use turnstile_block::ram::{Image, RamDisk, Store};
use turnstile_service_block::{Disk, QUEUES, VECTORS};
use turnstile_service_rt::{Answer, Attach, Doorbells, Event, GuestRings, Service, Storage, kept, service};
use turnstile_service_virtio::{Runtime, Virtio, answered, doorbells, words};

kept! {
    /// The state of the function.
    static KEPT: Kept<77>;
}

const _: () = assert!(words::<QUEUES, VECTORS>() == 77, "the words of a function");

static WORLD: Runtime<77> = Runtime::own(&KEPT);

/// The memory of the disk; none if the configuration gives none.
struct Bytes(Option<Storage>);

impl Image for Bytes {
    #[inline(always)] // On the path of every request.
    fn length(&self) -> u64 {
        self.0.as_ref().map_or(0, Storage::size) as u64
    }

    #[inline(always)] // On the path of every request.
    fn piece(&self, at: u64, most: u64) -> Option<&[u8]> {
        self.0.as_ref()?.bytes().get(at as usize..at.checked_add(most)? as usize)
    }
}

impl Store for Bytes {
    #[inline(always)] // On the path of every request.
    fn piece_mut(&mut self, at: u64, most: u64) -> Option<&mut [u8]> {
        self.0.as_mut()?.bytes_mut().get_mut(at as usize..at.checked_add(most)? as usize)
    }
}

struct Function(Virtio<QUEUES, VECTORS, Disk<RamDisk<Bytes>, GuestRings>>);

service!(Function);

impl Service for Function {
    const NEW: Self = Self(Virtio::new(Disk::new(RamDisk::new(Bytes(None)))));
    const DOORBELLS: Doorbells = doorbells(QUEUES as u32);

    fn attach(&mut self, Attach { kept, bars, .. }: Attach) -> Answer {
        let storage = Storage::take();
        let (name, writable) =
            storage.as_ref().map_or(([0; 16], false), |storage| (storage.name(), storage.is_writable()));
        self.0.model.insert(RamDisk::new(Bytes(storage)), name, writable);
        answered(self.0.attach(&WORLD, kept, bars))
    }

    #[inline(always)] // The way of each notification.
    fn event(&mut self, event: Event) -> Answer {
        answered(self.0.event(&WORLD, event))
    }
}
