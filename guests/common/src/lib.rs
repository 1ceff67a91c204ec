// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the bare-metal guests of all architectures have in common: the words of their command lines, the lines that they print,
//! what a runtime keeps, and those parts of their programs that no architecture has otherwise.
//!
//! Nothing here touches a machine: whatever does is a parameter.
#![no_std]
#![deny(unsafe_code)]

pub mod beacon;
pub mod bench;
#[expect(unsafe_code, reason = "assembly hands back an address")]
pub mod call;
pub mod checker;
#[expect(unsafe_code, reason = "the guest's clock is set once")]
pub mod clock;
pub mod console;
pub mod disk;
pub mod doorbell;
pub mod echo;
#[expect(unsafe_code, reason = "a value that is written once, without a lock")]
pub mod global;
#[expect(unsafe_code, reason = "functions in atomic words")]
pub mod handler;
pub mod hostile;
#[expect(unsafe_code, reason = "the linker's names")]
pub mod image;
pub mod list;
pub mod load;
pub mod memory;
pub mod network;
#[expect(unsafe_code, reason = "the guest's command line is set once")]
pub mod options;
pub mod pci;
pub mod random;
pub mod reporter;
pub mod restart;
pub mod row;
pub mod service;
pub mod share;
mod sized;
#[expect(unsafe_code, reason = "memory that is used behind the compiler's back")]
pub mod stack;
pub mod state;
pub mod terminal;
pub mod test;
pub mod touch;
pub mod trap;
pub mod tree;
pub mod virtio;

/// Names the function that a runtime calls once it is set up; the guest powers off when it returns.
#[macro_export]
macro_rules! entry {
    ($main:path) => {
        #[unsafe(no_mangle)]
        extern "C" fn guest_main() {
            let main: fn() = $main;
            main();
        }
    };
}
