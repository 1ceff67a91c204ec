// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the machines of all architectures do alike.

use spin::Once;
use turnstile_bundle::{Mapping, VmSpec};
use turnstile_vm::lifecycle::{OnCrash, Phase};

use crate::arch::memory::{self, Backing, GuestMemory, Pool, Share};
use crate::arch::vm::Vm;

/// What VMs have memory from in common.
static POOL: Once<&Pool> = Once::new();

/// Takes memory for a pool of so many bytes, before the first VM is started; nothing if there is to be none.
///
/// # Errors
/// When there is not enough.
pub fn set_pool(size: u64) -> Result<(), memory::Error> {
    if size != 0 {
        let pool = memory::pool(size)?;
        POOL.call_once(|| pool);
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

/// Returns how many bytes the pool has, and how many of them are free; `None` if there is none.
pub fn pool_bytes() -> Option<(u64, u64)> {
    POOL.get().map(|pool| (pool.bytes(), pool.free_bytes()))
}

/// Says whether the machine's pool has a block now.
pub fn pool_has_memory() -> bool {
    POOL.get().is_some_and(|pool| pool.has_free())
}

/// Where the memory of a VM comes from.
pub fn backing(vm: &'static Vm, spec: &VmSpec<'_>) -> Backing {
    match spec.mapping {
        Mapping::AtStart => Backing::AtStart,
        Mapping::OnDemand => Backing::OnDemand,
        // The bundle has one, or it would not have been read.
        Mapping::FromPool => {
            POOL.get().map_or(Backing::OnDemand, |pool| Backing::Pool(Share::new(pool, &vm.taken)))
        }
    }
}

/// Returns how many bytes of memory a VM has now, and how many at most. As long as it runs all of that is its own, but the `whole` blocks if they
/// come from a pool.
pub fn memory(vm: &Vm, spec: &VmSpec<'_>, whole: u64) -> (u64, u64) {
    let own = match (vm.lifecycle.phase(), spec.mapping) {
        (Phase::Created | Phase::Stopped(_), _) => 0,
        (_, Mapping::FromPool) => spec.memory.saturating_sub(whole),
        (_, Mapping::AtStart | Mapping::OnDemand) => spec.memory,
    };
    (own + vm.taken.bytes(), spec.memory)
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
