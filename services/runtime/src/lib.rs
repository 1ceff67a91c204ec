// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The runtime of services: programs without privilege that are entered with one event, answer it, and are left.
//!
//! A program implements [`Service`] and names its type in [`service!`]. It needs no `unsafe`. Its state is in the one value of
//! that type, which it finds as it has left it until it crashes, or its VM starts anew. What has to survive a crash is in
//! [`kept!`]. [`GuestMemory`] is the memory of its VM, or of one of its members, and [`Storage`] that of its disk, or [`Layers`] if that is over an image, if it has them. [`Device`] is the machine's device
//! that it drives. A service has no FP or vector registers, no threads and no heap.
//!
//! On a machine with an operating system, where the tests of programs run, calls do nothing and return zero.
#![cfg_attr(target_os = "none", no_std)]

mod access;
mod calls;
mod copy;
#[cfg(feature = "misbehave")]
pub mod deeds;
mod device;
#[cfg(target_os = "none")]
mod entry;
mod event;
mod fruitless;
mod kept;
mod layers;
mod memory;
#[cfg(target_os = "none")]
mod panic;
mod rings;
mod service;
mod state;
mod storage;

pub use calls::{
    Log, alarm, decode, is_released, keep, message, port_name, print, random, release, send, time,
};
pub use device::{Device, DeviceMemory, Registers};
pub use event::{Characters, Event};
pub use fruitless::Fruitless;
pub use kept::Kept;
pub use layers::Layers;
pub use memory::{GuestMemory, Memory, Outside};
pub use rings::GuestRings;
pub use service::{Attach, Service};
pub use storage::Storage;
pub use turnstile_service::abi::{
    AGAIN, Answer, BARS, BLOCK, CONFIGURATION, LATER, LATER_EVENTS, MEMBER_QUEUES, MEMBERS, MMIO,
    PORT_NAME_WORDS, PORTS, ROOM, Sent, UNDRIVEN, member_device, message_word, split_device, split_message,
    split_size, terminal_size,
};
pub use turnstile_service::image::{BY_PLACE, BY_VALUE, Doorbells};
pub use turnstile_service::{drive, port};

#[doc(hidden)]
pub use state::{State, run};

/// Makes a program of a type that is a [`Service`].
#[macro_export]
macro_rules! service {
    ($type:ty) => {
        #[cfg(target_os = "none")]
        const _: () = {
            static STATE: $crate::State<$type> = $crate::State::new();

            /// The tool finds it here.
            #[used]
            #[unsafe(link_section = ".doorbells")]
            static DOORBELLS: [u32; 3] = <$type as $crate::Service>::DOORBELLS.words();

            // On arm64 nothing has to be done before it.
            #[cfg_attr(target_arch = "aarch64", unsafe(export_name = "_start"))]
            #[cfg_attr(target_arch = "aarch64", unsafe(link_section = ".text._start"))]
            #[cfg_attr(not(target_arch = "aarch64"), unsafe(no_mangle))]
            extern "C" fn turnstile_service_event(kind: u64, a: u64, b: u64, c: u64, d: u64, e: u64) -> ! {
                // SAFETY: the hypervisor enters here and nowhere else, with one event at a time.
                unsafe { $crate::run(&STATE, [kind, a, b, c, d, e]) }
            }
        };

        #[cfg(not(target_os = "none"))]
        #[allow(dead_code)]
        fn main() {
            // So that the compiler sees what would be used.
            let mut service = <$type as $crate::Service>::NEW;
            $crate::Service::attach(&mut service, $crate::Attach::default());
            $crate::Service::detach(&mut service, 0);
            $crate::Service::device(&mut service, [0; 2]);
            $crate::Service::event(&mut service, $crate::Event::Unknown);
        }
    };
}
