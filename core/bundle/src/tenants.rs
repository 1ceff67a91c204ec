// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who is on each physical CPU.

use crate::MAX_PHYSICAL_CPUS;
use crate::schedule::Schedule;
use crate::spec::VmSpec;

/// Which VM is on each physical CPU: of those that share one, the first.
pub(crate) struct Tenants([Option<Tenant>; MAX_PHYSICAL_CPUS]);

#[derive(Clone, Copy)]
struct Tenant {
    vm: u8,
    pinned: bool,
}

/// A CPU that a VM cannot have because of an earlier one.
pub(crate) struct Conflict {
    /// The CPU.
    pub cpu: u16,
    /// The earlier VM's index.
    pub with: usize,
    /// Whether the earlier VM is pinned to the CPU.
    pub pinned: bool,
}

impl Tenants {
    /// Makes a machine without VMs.
    pub(crate) const fn new() -> Tenants {
        Tenants([None; MAX_PHYSICAL_CPUS])
    }

    /// Puts a VM whose list was checked on its CPUs.
    pub(crate) fn admit(&mut self, index: usize, vm: &VmSpec<'_>) -> Result<(), Conflict> {
        let pinned = vm.schedule == Schedule::Pinned;
        for cpu in vm.cpus.iter() {
            let Some(tenant) = self.0.get_mut(usize::from(cpu)) else { continue };
            match tenant {
                None => *tenant = Some(Tenant { vm: index as u8, pinned }),
                Some(other) if pinned || other.pinned => {
                    return Err(Conflict { cpu, with: usize::from(other.vm), pinned: other.pinned });
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}
