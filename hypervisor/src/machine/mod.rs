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
//! | `is_boot_word` | which words of the command line the arch crate reads itself |

use core::fmt;

use turnstile_bundle::VmSpec;
use turnstile_vm::lifecycle::OnCrash;

use crate::arch::memory::{self, GuestMemory};

#[cfg(target_arch = "aarch64")]
mod arm64;
#[cfg(target_arch = "powerpc64")]
mod power64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub use arm64::{Devices, Error, Machine, explain_crash, is_boot_word};
#[cfg(target_arch = "powerpc64")]
pub use power64::{Devices, Error, Machine, explain_crash, is_boot_word};
#[cfg(target_arch = "x86_64")]
pub use x86_64::{Devices, Error, Machine, explain_crash, is_boot_word};

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

/// What is to happen when the guest of a VM has crashed.
fn on_crash(spec: &VmSpec<'_>) -> OnCrash {
    match spec.on_crash {
        turnstile_bundle::OnCrash::Stop => OnCrash::Stop,
        turnstile_bundle::OnCrash::Restart => OnCrash::Restart,
    }
}

/// Returns what a VM's description says of what is to be started.
#[cfg(not(target_arch = "aarch64"))]
fn source(spec: &VmSpec<'static>) -> turnstile_machine::Source<'static> {
    turnstile_machine::Source {
        kernel: spec.kernel,
        initrd: spec.initrd,
        cmdline: spec.cmdline,
        memory: spec.memory,
        vcpus: spec.vcpus,
    }
}

/// Fills fresh memory; gives it back if that fails.
fn filled<T>(
    mut memory: GuestMemory,
    fill: impl FnOnce(&mut GuestMemory) -> Result<T, Error>,
) -> Result<(GuestMemory, T), Error> {
    match fill(&mut memory) {
        Ok(filled) => Ok((memory, filled)),
        Err(error) => {
            memory.release()?;
            Err(error)
        }
    }
}
