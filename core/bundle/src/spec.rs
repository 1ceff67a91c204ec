// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The description of a VM, and what must hold for it to be started.

use core::fmt;
use core::ops::Deref;
use core::str::FromStr;

use arrayvec::ArrayVec;
use turnstile_machine::GuestMachine;
use turnstile_machine::map::MAX_VCPUS;

use crate::error::{BundleError, SpecError, VmLabel};
use crate::{MAX_CMDLINE, MAX_NAME, MAX_PHYSICAL_CPUS, MAX_VMS};

/// The physical CPUs of a VM: that of vCPU *i* at index *i*.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CpuList(ArrayVec<u16, MAX_VCPUS>);

impl CpuList {
    /// Makes a list of at most 64 physical CPU indexes.
    ///
    /// # Errors
    ///
    /// Refuses a longer one.
    pub fn new(cpus: &[u16]) -> Result<CpuList, SpecError> {
        ArrayVec::try_from(cpus).map(CpuList).map_err(|_| SpecError::TooManyCpus(cpus.len()))
    }
}

impl Deref for CpuList {
    type Target = [u16];

    fn deref(&self) -> &[u16] {
        &self.0
    }
}

/// Declares an enum of named choices with its conversions from and to the names.
macro_rules! choices {
    ($(#[$doc:meta])* $type:ident { $($(#[$variant_doc:meta])* $variant:ident = $name:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub enum $type { $($(#[$variant_doc])* $variant),+ }

        impl $type {
            /// Every choice, in the order in which messages list them.
            pub const ALL: &'static [$type] = &[$($type::$variant),+];

            /// Returns the choice's name in configurations and bundles.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $($type::$variant => $name),+ }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }

        impl FromStr for $type {
            type Err = UnknownChoice;

            fn from_str(name: &str) -> Result<Self, UnknownChoice> {
                Self::ALL.iter().copied().find(|choice| choice.name() == name).ok_or(UnknownChoice)
            }
        }
    };
}

choices! {
    /// What a guest gets for a performance monitor.
    Pmu {
        /// None: its registers are UNDEFINED.
        #[default]
        Off = "off",
        /// One whose registers trap to the hypervisor.
        Trapped = "trapped",
    }
}

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

/// The text names none of the choices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownChoice;

impl fmt::Display for UnknownChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there is no such choice")
    }
}

impl core::error::Error for UnknownChoice {}

/// One VM: what it has and what it starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VmSpec<'a> {
    /// Its name: 1 to 31 of `a`–`z`, `0`–`9` and `-`, unique in the bundle.
    pub name: &'a str,
    /// The physical CPUs it runs on, one per vCPU, used by no other VM.
    pub cpus: CpuList,
    /// Its memory in bytes.
    pub memory: u64,
    /// The machine that the guest sees.
    pub machine: GuestMachine,
    /// Its performance monitor.
    pub pmu: Pmu,
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
    /// Returns the number of vCPUs: one for each physical CPU in its list.
    #[must_use]
    pub fn vcpus(&self) -> usize {
        self.cpus.len()
    }

    /// Checks all that concerns this VM alone, except what its images contain.
    ///
    /// # Errors
    ///
    /// Says the first thing that is wrong.
    pub fn check(&self) -> Result<(), SpecError> {
        check_name(self.name)?;
        self.machine.map().check(self.vcpus(), self.memory).map_err(SpecError::Map)?;
        for (vcpu, &cpu) in self.cpus.iter().enumerate() {
            if usize::from(cpu) >= MAX_PHYSICAL_CPUS {
                return Err(SpecError::CpuOutOfRange(cpu));
            }
            if self.cpus.iter().take(vcpu).any(|&earlier| earlier == cpu) {
                return Err(SpecError::CpuTwice(cpu));
            }
        }
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
    for (index, vm) in vms.iter().enumerate() {
        let label = VmLabel::new(index, vm.name);
        if let Err(problem) = vm.check() {
            return Err(BundleError::Vm { vm: label, problem });
        }
        for (earlier_index, earlier) in vms.iter().take(index).enumerate() {
            let other = VmLabel::new(earlier_index, earlier.name);
            if earlier.name == vm.name {
                return Err(BundleError::SameName { vm: label, other });
            }
            if let Some(&cpu) = vm.cpus.iter().find(|cpu| earlier.cpus.contains(cpu)) {
                return Err(BundleError::SharedCpu { cpu, vm: label, other });
            }
        }
    }
    Ok(())
}
