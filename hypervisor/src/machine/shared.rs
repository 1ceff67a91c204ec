// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the machines of all architectures do alike.

use spin::Once;
use turnstile_bundle::{Mapping, VmSpec};
use turnstile_vm::lifecycle::OnCrash;

use crate::arch::memory::{self, Backing, GuestMemory};

/// What VMs have memory from in common.
static POOL: Once<Backing> = Once::new();

/// Takes memory for a pool of so many bytes, before the first VM is started; nothing if there is to be none.
///
/// # Errors
/// When there is not enough.
pub fn set_pool(size: u64) -> Result<(), memory::Error> {
    if size != 0 {
        let pool = memory::pool(size)?;
        POOL.call_once(|| Backing::Pool(pool));
    }
    Ok(())
}

/// What is to happen when the guest of a VM has crashed.
pub fn on_crash(spec: &VmSpec<'_>) -> OnCrash {
    match spec.on_crash {
        turnstile_bundle::OnCrash::Stop => OnCrash::Stop,
        turnstile_bundle::OnCrash::Restart => OnCrash::Restart,
    }
}

/// Where the memory of a VM comes from.
pub fn backing(spec: &VmSpec<'_>) -> Backing {
    match spec.mapping {
        Mapping::AtStart => Backing::AtStart,
        Mapping::OnDemand => Backing::OnDemand,
        // The bundle has one, or it would not have been read.
        Mapping::FromPool => POOL.get().copied().unwrap_or(Backing::OnDemand),
    }
}

/// Returns what a VM's description says of what is to be started, if it has these PCI functions.
#[cfg(not(target_arch = "aarch64"))]
pub fn source(
    spec: &VmSpec<'static>,
    functions: turnstile_machine::Functions,
) -> turnstile_machine::Source<'static> {
    turnstile_machine::Source {
        kernel: spec.kernel,
        initrd: spec.initrd,
        cmdline: spec.cmdline,
        memory: spec.memory,
        vcpus: spec.vcpus,
        functions,
    }
}

/// Fills fresh memory; gives it back if that fails.
pub fn filled<T, E: From<memory::Error>>(
    mut memory: GuestMemory,
    fill: impl FnOnce(&mut GuestMemory) -> Result<T, E>,
) -> Result<(GuestMemory, T), E> {
    match fill(&mut memory) {
        Ok(filled) => Ok((memory, filled)),
        Err(error) => {
            memory.release()?;
            Err(error)
        }
    }
}
