// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The ports of a VM as a virtio console behind PCI: streams of bytes with names, and no terminal.
//!
//! What the guest writes is passed on by 16 bytes, what comes for it by eight, and neither is lost or comes twice when the service is
//! killed: the hypervisor counts both, and the service keeps to which buffer which count belongs.
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

mod model;
mod outlets;
mod port;

#[cfg(test)]
mod tests;

use turnstile_console::control::Name;
use turnstile_service_rt::{
    Answer, Attach, Characters, Doorbells, Event, PORT_NAME_WORDS, Sent, Service, kept, port_name, send,
    service,
};
use turnstile_service_virtio::{Runtime, Virtio, answered, doorbells, words};

use model::{Ports, QUEUES, VECTORS, attach, event};
use outlets::{Outlets, WORDS};

kept! {
    /// The state of the function.
    static KEPT: Kept<273>;
}

kept! {
    /// What the model keeps.
    static MARKS: Kept<30>;
}

const _: () =
    assert!(words::<QUEUES, VECTORS>() == 273 && WORDS == 30, "the words of a function, and of the model");

static WORLD: Runtime<273> = Runtime::own(&KEPT);

/// The other sides of the ports, which the hypervisor has.
struct Outside;

impl Outlets for Outside {
    fn name(&self, port: usize) -> Option<Name> {
        let mut bytes = [0; 8 * PORT_NAME_WORDS as usize];
        for (word, at) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(0..) {
            *word = port_name(port as u64, at)?.to_le_bytes();
        }
        let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        Some(Name::new(text))
    }

    fn send(&mut self, port: usize, bytes: &[u8]) -> Sent {
        let mut all = [0; 16];
        all.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        let all = u128::from_le_bytes(all);
        send(port as u64, Characters { count: bytes.len() as u64, words: [all as u64, (all >> 64) as u64] })
    }

    fn get(&self, at: usize) -> u64 {
        MARKS.get(at)
    }

    fn set(&mut self, at: usize, word: u64) {
        MARKS.set(at, word);
    }
}

struct Function(Virtio<QUEUES, VECTORS, Ports<Outside>>);

service!(Function);

impl Service for Function {
    const NEW: Self = Self(Virtio::new(Ports::new(Outside)));
    const DOORBELLS: Doorbells = doorbells(QUEUES as u32);

    fn attach(&mut self, Attach { kept, bars, .. }: Attach) -> Answer {
        answered(attach(&mut self.0, &WORLD, kept, bars))
    }

    fn event(&mut self, received: Event) -> Answer {
        answered(event(&mut self.0, &WORLD, received))
    }
}
