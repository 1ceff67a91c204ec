// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A VM's console as a virtio console behind PCI: one port, which is a terminal and has a size.
//!
//! What the guest writes is printed by 16 characters, what is typed comes to it by eight, and neither is lost or comes twice when the
//! service is killed: the hypervisor counts both, and the service keeps to which buffer which count belongs.
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

mod model;

#[cfg(test)]
mod tests;

use turnstile_service_rt::{Answer, Attach, Characters, Doorbells, Event, Service, kept, print, service};
use turnstile_service_virtio::{Runtime, Virtio, answered, doorbells, words};

use model::{Console, QUEUES, Terminal, VECTORS, attach, event};

kept! {
    /// The state of the function.
    static KEPT: Kept<53>;
}

kept! {
    /// What the model keeps.
    static MARKS: Kept<3>;
}

const _: () = assert!(words::<QUEUES, VECTORS>() == 53, "the words of a function");

static WORLD: Runtime<53> = Runtime::own(&KEPT);

/// The terminal of the VM's console, which the hypervisor has.
struct Screen;

impl Terminal for Screen {
    fn print(&mut self, characters: &[u8]) -> u64 {
        let mut bytes = [0; 16];
        bytes.iter_mut().zip(characters).for_each(|(to, from)| *to = *from);
        let all = u128::from_le_bytes(bytes);
        print(Characters { count: characters.len() as u64, words: [all as u64, (all >> 64) as u64] })
    }

    fn get(&self, at: usize) -> u64 {
        MARKS.get(at)
    }

    fn set(&mut self, at: usize, word: u64) {
        MARKS.set(at, word);
    }
}

struct Function(Virtio<QUEUES, VECTORS, Console<Screen>>);

service!(Function);

impl Service for Function {
    const NEW: Self = Self(Virtio::new(Console::new(Screen)));
    const DOORBELLS: Doorbells = doorbells(QUEUES as u32);

    fn attach(&mut self, Attach { kept, bars, .. }: Attach) -> Answer {
        answered(attach(&mut self.0, &WORLD, kept, bars))
    }

    fn event(&mut self, received: Event) -> Answer {
        answered(event(&mut self.0, &WORLD, received))
    }
}
