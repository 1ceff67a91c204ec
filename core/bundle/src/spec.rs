// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The description of a VM, and what must hold for it to be started.

use crate::choices::choices;
use crate::cpus::{CpuList, Tenants};
use crate::error::{BundleError, SpecError, VmLabel};
use crate::machine::Machine;
use crate::{MAX_CMDLINE, MAX_NAME, MAX_VMS};

choices! {
    /// What happens to a VM whose guest crashed.
    OnCrash {
        /// It stays stopped.
        #[default]
        Stop = "stop",
        /// It starts again.
        Restart = "restart",
    }
}

choices! {
    /// When the memory of a VM gets its translations.
    Mapping {
        /// Before it starts: no access to its memory ever exits.
        #[default]
        AtStart = "at-start",
        /// A block at a time, when the guest first touches it.
        OnDemand = "on-demand",
    }
}

/// Who runs on the physical CPUs of a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Schedule {
    /// vCPU *i* alone, on the CPU at index *i* of the list.
    #[default]
    Pinned,
    /// Any vCPU on any CPU of the list, in turn with other VMs whose lists name it too.
    Shared(Class),
}

impl Schedule {
    /// The name of [`Schedule::Pinned`] in configurations and bundles.
    pub const PINNED: &'static str = "pinned";
    /// The name of [`Schedule::Shared`] in configurations and bundles.
    pub const SHARED: &'static str = "shared";

    /// Returns the name in configurations and bundles.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Schedule::Pinned => Schedule::PINNED,
            Schedule::Shared(_) => Schedule::SHARED,
        }
    }
}

/// How the vCPUs of a VM compete for a shared CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Each gets a share of the time in proportion to its weight.
    Fair {
        /// Its weight, in [`Class::WEIGHTS`].
        weight: u16,
    },
    /// Each goes before all fair ones, and before real-time ones of a lower priority.
    RealTime {
        /// Its priority, in [`Class::PRIORITIES`]; a larger one is more urgent.
        priority: u8,
    },
}

impl Class {
    /// The weights there are.
    pub const WEIGHTS: core::ops::RangeInclusive<u16> = 1..=10_000;
    /// The weight of a VM that asks for none.
    pub const DEFAULT_WEIGHT: u16 = 100;
    /// The priorities there are.
    pub const PRIORITIES: core::ops::RangeInclusive<u8> = 1..=99;
}

impl Default for Class {
    fn default() -> Self {
        Class::Fair { weight: Class::DEFAULT_WEIGHT }
    }
}

/// One VM: what it has and what it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VmSpec<'a> {
    /// Its name: 1 to 31 of `a`–`z`, `0`–`9` and `-`, unique in the bundle.
    pub name: &'a str,
    /// The number of its vCPUs.
    pub vcpus: usize,
    /// The physical CPUs it runs on, without repetition. [`VmSpec::schedule`] says who else does.
    pub cpus: CpuList<'a>,
    /// Whether it has its CPUs for itself.
    pub schedule: Schedule,
    /// Its memory in bytes.
    pub memory: u64,
    /// When that memory gets its translations.
    pub mapping: Mapping,
    /// The machine that the guest sees.
    pub machine: Machine,
    /// What happens when its guest crashes.
    pub on_crash: OnCrash,
    /// Whether the hypervisor keeps statistics of its exits.
    pub statistics: bool,
    /// The kernel's command line.
    pub cmdline: &'a str,
    /// The kernel's file.
    pub kernel: &'a [u8],
    /// The initial RAM disk's file.
    pub initrd: Option<&'a [u8]>,
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

/// Checks a VM's name.
fn check_name(name: &str) -> Result<(), SpecError> {
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
