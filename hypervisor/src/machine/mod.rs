// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What differs by architecture in a VM: how it is built from the bundle, what its memory begins with, its devices.
//!
//! Each architecture has the same items:
//!
//! | item | what |
//! |---|---|
//! | `Machine` | what a VM's description becomes on this machine; makes its parts, its threads, its memory, its devices |
//! | `Devices` | the devices of a VM that exits do not handle themselves |
//! | `Error` | why a VM cannot be built or started |
//! | `explain_crash` | what a crash code of the arch crate means |
//! | `set_line` | sets the interrupt line of a device |
//! | `message` | delivers a message-signalled interrupt |
//! | `storage` | makes memory for a disk |
//! | `is_boot_word` | which words of the command line the arch crate reads itself |

use core::fmt;

use crate::arch::memory;

#[cfg(target_arch = "aarch64")]
mod arm64;
mod place;
#[cfg(target_arch = "powerpc64")]
mod power64;
pub mod shared;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub use arm64::{Devices, Error, Machine, explain_crash, is_boot_word, message, set_line, storage};
#[cfg(target_arch = "powerpc64")]
pub use power64::{Devices, Error, Machine, explain_crash, is_boot_word, message, set_line, storage};
#[cfg(target_arch = "x86_64")]
pub use x86_64::{Devices, Error, Machine, explain_crash, is_boot_word, message, set_line, storage};

pub use place::{Function, Place, Reach, Site};

impl From<memory::Error> for Error {
    fn from(error: memory::Error) -> Self {
        Self::Memory(error)
    }
}

/// A crash code, which shows as what it means.
pub struct CrashText(pub u16);

impl fmt::Display for CrashText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        explain_crash(self.0, f)
    }
}
