// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a VM writes over an image in RAM, which others read, too: a virtio block device behind PCI.
//!
//! The image is memory that nobody writes. What is written goes to memory of this service's own, which the configuration gives it. That
//! stays when the VM starts anew, and when this service does.
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

#[cfg(test)]
mod tests;

use core::fmt::Write;

use turnstile_block::disk::SECTOR;
use turnstile_block::overlay::{self, Kept};
use turnstile_service_block::{Disk, QUEUES, VECTORS};
use turnstile_service_rt::{
    Answer, Attach, Doorbells, Event, GuestRings, Layers, Log, Service, kept, service,
};
use turnstile_service_virtio::{Runtime, Virtio, answered, doorbells, words};

kept! {
    /// The state of the function.
    static KEPT: Kept<77>;
}

const _: () = assert!(words::<QUEUES, VECTORS>() == 77, "the words of a function");

static WORLD: Runtime<77> = Runtime::own(&KEPT);

/// The disk.
type Overlay = overlay::Overlay<'static, &'static [u8], &'static mut [u8]>;

/// Returns the disk of these layers with its name: one without a sector if the configuration gives none, or they do not fit together.
fn disk(layers: Option<Layers>) -> (Overlay, [u8; 16]) {
    const EMPTY: Overlay = Overlay::empty(&[], &mut []);
    let Some(Layers { name, size, image, store, owners, map }) = layers else { return (EMPTY, [0; 16]) };
    (Overlay::new(image, store, Kept { map, owners }, size / SECTOR).unwrap_or(EMPTY), name)
}

struct Function {
    virtio: Virtio<QUEUES, VECTORS, Disk<Overlay, GuestRings>>,
    /// It has said that there is no room.
    has_said: bool,
}

service!(Function);

impl Function {
    /// The guest gets an error for each write that finds no room. Whoever gave it so little is told once.
    #[cold]
    fn say(&mut self) {
        self.has_said = true;
        // The log takes everything.
        let _ = Log.write_str("what its guest writes has no room left: give the disk more `writes`\n");
    }
}

impl Service for Function {
    const NEW: Self = Self { virtio: Virtio::new(Disk::new(Overlay::empty(&[], &mut []))), has_said: false };
    const DOORBELLS: Doorbells = doorbells(QUEUES as u32);

    fn attach(&mut self, Attach { kept, bars, .. }: Attach) -> Answer {
        let (disk, name) = disk(Layers::take());
        self.virtio.model.insert(disk, name, true);
        answered(self.virtio.attach(&WORLD, kept, bars))
    }

    #[inline(always)] // The way of each notification.
    fn event(&mut self, event: Event) -> Answer {
        let answer = answered(self.virtio.event(&WORLD, event));
        if self.virtio.model.disk().has_lacked() && !self.has_said {
            self.say();
        }
        answer
    }
}
