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
//! | `crash_text` | what a crash code of the arch crate means |
//! | `is_boot_word` | which words of the command line the arch crate reads itself |

use turnstile_bundle::VmSpec;
use turnstile_vm::lifecycle::OnCrash;

#[cfg(target_arch = "aarch64")]
mod arm64;
#[cfg(target_arch = "powerpc64")]
mod power64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub use arm64::{Devices, Error, Machine, crash_text, is_boot_word};
#[cfg(target_arch = "powerpc64")]
pub use power64::{Devices, Error, Machine, crash_text, is_boot_word};
#[cfg(target_arch = "x86_64")]
pub use x86_64::{Devices, Error, Machine, crash_text, is_boot_word};

/// What is to happen when the guest of a VM has crashed.
fn on_crash(spec: &VmSpec<'_>) -> OnCrash {
    match spec.on_crash {
        turnstile_bundle::OnCrash::Stop => OnCrash::Stop,
        turnstile_bundle::OnCrash::Restart => OnCrash::Restart,
    }
}
