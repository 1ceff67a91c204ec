// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What VMs must satisfy before they start: each one, and all together.

use turnstile_machine::map::{MEMORY_UNIT, MIN_MEMORY};
use turnstile_machine::{GicVersion, MapError, pseries};

use crate::cpus::CpuList;
use crate::error::BundleError;
use crate::machine::{Arm64, Machine, Pc, Pseries};
use crate::schedule::{Class, Schedule};
use crate::spec::{Mapping, VmSpec};
use crate::spec_error::{SpecError, VmLabel};
use crate::tenants::Tenants;
use crate::{MAX_CMDLINE, MAX_NAME, MAX_PHYSICAL_CPUS, MAX_VMS};

impl Machine {
    /// Checks that there can be a VM of `vcpus` vCPUs and `memory` bytes of RAM.
    ///
    /// # Errors
    ///
    /// Says which bound does not hold.
    pub fn check(&self, vcpus: usize, memory: u64) -> Result<(), SpecError> {
        match self {
            Machine::Arm64(arm64) => arm64.check(vcpus, memory),
            Machine::Pc(pc) => pc.check(vcpus, memory),
            Machine::Pseries(pseries) => pseries.check(vcpus, memory),
        }
    }
}

impl Arm64 {
    /// Checks that there can be a VM of `vcpus` vCPUs and `memory` bytes of RAM.
    ///
    /// # Errors
    ///
    /// Says which bound does not hold.
    pub fn check(&self, vcpus: usize, memory: u64) -> Result<(), SpecError> {
        let map = self.map.map();
        map.check(self.gic.on(GicVersion::V3), vcpus, memory).map_err(SpecError::Map)?;
        map.check_flash(self.flash).map_err(SpecError::Map)
    }
}

impl Pc {
    /// Checks that there can be a VM of `vcpus` vCPUs and `memory` bytes of RAM.
    ///
    /// # Errors
    ///
    /// Says which bound does not hold.
    pub const fn check(&self, vcpus: usize, memory: u64) -> Result<(), SpecError> {
        if vcpus == 0 || vcpus > self.apic.max_vcpus() {
            return Err(SpecError::ApicVcpus { apic: self.apic, vcpus });
        }
        if memory < MIN_MEMORY {
            Err(SpecError::Map(MapError::TooSmall(memory)))
        } else if !memory.is_multiple_of(MEMORY_UNIT) {
            Err(SpecError::Map(MapError::Unaligned(memory)))
        } else if memory > Self::MAX_MEMORY {
            Err(SpecError::Map(MapError::TooLarge { memory, most: Self::MAX_MEMORY }))
        } else {
            Ok(())
        }
    }
}

impl Pseries {
    /// Checks that there can be a VM of `vcpus` vCPUs and `memory` bytes of RAM.
    ///
    /// # Errors
    ///
    /// Says which bound does not hold.
    pub fn check(&self, vcpus: usize, memory: u64) -> Result<(), SpecError> {
        if vcpus == 0 || vcpus > pseries::MAX_VCPUS {
            return Err(SpecError::PartitionVcpus(vcpus));
        }
        let threads = usize::from(self.threads);
        if !pseries::THREADS.contains(&threads) {
            return Err(SpecError::Threads(self.threads));
        }
        if !vcpus.is_multiple_of(threads) {
            return Err(SpecError::Cores { vcpus, threads: self.threads });
        }
        pseries::check_memory(memory).map_err(SpecError::Map)
    }
}

impl CpuList<'_> {
    /// Checks that every CPU can exist and is named once.
    pub(crate) fn check(&self) -> Result<(), SpecError> {
        let mut seen = [false; MAX_PHYSICAL_CPUS];
        for cpu in self.iter() {
            match seen.get_mut(usize::from(cpu)) {
                None => return Err(SpecError::CpuOutOfRange(cpu)),
                Some(true) => return Err(SpecError::CpuTwice(cpu)),
                Some(seen) => *seen = true,
            }
        }
        Ok(())
    }
}

impl VmSpec<'_> {
    /// Checks all that concerns this VM alone, except what its images contain.
    ///
    /// With [`Gic::Auto`](crate::Gic::Auto) the bounds are those of a GICv3: the bundle does not know the machine.
    ///
    /// # Errors
    ///
    /// Says the first thing that is wrong.
    pub fn check(&self) -> Result<(), SpecError> {
        check_name(self.name)?;
        self.machine.check(self.vcpus, self.memory)?;
        self.cpus.check()?;
        self.check_schedule()?;
        if self.cmdline.len() > MAX_CMDLINE {
            return Err(SpecError::CmdlineTooLong(self.cmdline.len()));
        }
        if self.cmdline.contains('\0') {
            return Err(SpecError::CmdlineNul);
        }
        if self.kernel.is_empty() {
            return Err(SpecError::NoKernel);
        }
        if self.initrd.is_some_and(<[u8]>::is_empty) {
            return Err(SpecError::EmptyInitrd);
        }
        Ok(())
    }

    fn check_schedule(&self) -> Result<(), SpecError> {
        match self.schedule {
            Schedule::Pinned if self.cpus.len() != self.vcpus => {
                Err(SpecError::Pinning { vcpus: self.vcpus, cpus: self.cpus.len() })
            }
            Schedule::Shared(_) if self.cpus.is_empty() => Err(SpecError::NoCpus),
            Schedule::Shared(Class::Fair { weight }) if !Class::WEIGHTS.contains(&weight) => {
                Err(SpecError::Weight(weight))
            }
            Schedule::Shared(Class::RealTime { priority }) if !Class::PRIORITIES.contains(&priority) => {
                Err(SpecError::Priority(priority))
            }
            _ => Ok(()),
        }
    }
}

/// Checks the name of a VM or a service.
pub fn check_name(name: &str) -> Result<(), SpecError> {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if name.is_empty() {
        Err(SpecError::NoName)
    } else if name.len() > MAX_NAME {
        Err(SpecError::NameTooLong(name.len()))
    } else if let Some(character) = name.chars().find(|&c| !u8::try_from(c).is_ok_and(allowed)) {
        Err(SpecError::NameCharacter(character))
    } else {
        Ok(())
    }
}

/// Checks the VMs of a bundle, each alone and all together.
///
/// # Errors
///
/// Says the first thing that is wrong, and with which VM.
pub fn validate(vms: &[VmSpec<'_>]) -> Result<(), BundleError> {
    if vms.is_empty() {
        return Err(BundleError::NoVms);
    }
    if vms.len() > MAX_VMS {
        return Err(BundleError::TooManyVms(vms.len()));
    }
    let mut tenants = Tenants::new();
    for (index, vm) in vms.iter().enumerate() {
        let label = VmLabel::new(index, vm.name);
        if let Err(problem) = vm.check() {
            return Err(BundleError::Vm { vm: label, problem });
        }
        if let Some(earlier) = vms.iter().take(index).position(|earlier| earlier.name == vm.name) {
            let other = VmLabel::new(earlier, vm.name);
            return Err(BundleError::SameName { vm: label, other });
        }
        if let Err(conflict) = tenants.admit(index, vm) {
            let other = vms.get(conflict.with).map_or(label, |other| VmLabel::new(conflict.with, other.name));
            let cpu = conflict.cpu;
            return Err(match (vm.schedule, conflict.pinned) {
                (Schedule::Pinned, true) => BundleError::SharedCpu { cpu, vm: label, other },
                (Schedule::Pinned, false) => {
                    BundleError::PinnedAndShared { cpu, pinned: label, shared: other }
                }
                (Schedule::Shared(_), _) => {
                    BundleError::PinnedAndShared { cpu, pinned: other, shared: label }
                }
            });
        }
    }
    Ok(())
}

/// Checks the VMs of a bundle against its pool of so many bytes, zero if there is none.
///
/// # Errors
///
/// Says the first thing that is wrong, and with which VM.
pub fn validate_pool(vms: &[VmSpec<'_>], pool: u64) -> Result<(), BundleError> {
    if !pool.is_multiple_of(MEMORY_UNIT) {
        return Err(BundleError::Pool(pool));
    }
    let mut of_pool = vms.iter().enumerate().filter(|(_, vm)| vm.mapping == Mapping::FromPool).peekable();
    if pool != 0 && of_pool.peek().is_none() {
        return Err(BundleError::PoolUnused);
    }
    let Some((index, vm)) = of_pool.find(|(_, vm)| vm.memory > pool) else { return Ok(()) };
    let problem = match pool {
        0 => SpecError::NoPool,
        pool => SpecError::PoolTooSmall { memory: vm.memory, pool },
    };
    Err(BundleError::Vm { vm: VmLabel::new(index, vm.name), problem })
}
