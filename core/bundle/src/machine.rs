// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine that a guest sees, with what can be chosen about it.

use core::fmt;

use turnstile_machine::map::{MEMORY_UNIT, MIN_MEMORY};
use turnstile_machine::{GicVersion, GuestMachine, MapError, pseries};

use crate::choices::choices;
use crate::error::SpecError;
use crate::paravirt::Paravirt;

/// A machine of one of the architectures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Machine {
    /// One for arm64.
    Arm64(Arm64),
    /// A PC, for x86-64.
    Pc(Pc),
    /// A partition, for POWER.
    Pseries(Pseries),
}

/// A machine for arm64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Arm64 {
    /// Where its devices are.
    pub map: GuestMachine,
    /// Its interrupt controller.
    pub gic: Gic,
    /// Its performance monitor.
    pub pmu: Pmu,
    /// Whether it has the Scalable Vector Extension.
    pub sve: bool,
}

/// A PC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pc {
    /// How its local APICs are reached.
    pub apic: Apic,
    /// What of KVM's paravirtual interface it offers.
    pub paravirt: Paravirt,
}

/// A partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pseries {
    /// Its interrupt controller.
    pub interrupts: Interrupts,
}

choices! {
    /// The interrupt controller of a partition.
    Interrupts {
        /// XIVE if the machine it runs on has it, else XICS.
        #[default]
        Auto = "auto",
        /// XIVE: the guest drives it itself.
        Xive = "xive",
        /// XICS: the guest drives it by calls.
        Xics = "xics",
    }
}

impl Interrupts {
    /// Returns the controller that the guest gets on a machine that has XIVE or not.
    #[must_use]
    pub const fn on(self, has_xive: bool) -> pseries::Interrupts {
        match self {
            Interrupts::Auto if has_xive => pseries::Interrupts::Xive,
            Interrupts::Auto | Interrupts::Xics => pseries::Interrupts::Xics,
            Interrupts::Xive => pseries::Interrupts::Xive,
        }
    }
}

impl Pseries {
    /// Its name in configurations and bundles.
    pub const NAME: &'static str = "pseries";

    /// Checks that a VM of `vcpus` vCPUs and `memory` bytes of RAM can be had.
    ///
    /// # Errors
    ///
    /// Says which bound does not hold.
    pub fn check(&self, vcpus: usize, memory: u64) -> Result<(), SpecError> {
        if vcpus == 0 || vcpus > pseries::MAX_VCPUS {
            return Err(SpecError::PartitionVcpus(vcpus));
        }
        pseries::check_memory(memory).map_err(SpecError::Map)
    }
}

choices! {
    /// What a guest gets for a performance monitor.
    Pmu {
        /// None: its registers are UNDEFINED.
        #[default]
        Off = "off",
        /// One whose registers trap to the hypervisor.
        Trapped = "trapped",
        /// The CPU's own counters, handed over at the first use.
        Owned = "owned",
    }
}

choices! {
    /// The interrupt controller that a guest gets.
    Gic {
        /// That of the machine it runs on.
        #[default]
        Auto = "auto",
        /// A GICv2, also on a machine with a GICv3 if its CPUs have the means.
        V2 = "v2",
        /// A GICv3.
        V3 = "v3",
    }
}

impl Gic {
    /// Returns the version that the guest gets on a machine with a controller of version `host`.
    #[must_use]
    pub const fn on(self, host: GicVersion) -> GicVersion {
        match self {
            Gic::Auto => host,
            Gic::V2 => GicVersion::V2,
            Gic::V3 => GicVersion::V3,
        }
    }
}

choices! {
    /// How the local APICs of a PC are reached (AMD APM vol. 2, 16.3 and 16.9).
    Apic {
        /// As MSRs, if the guest wants; it starts with the page.
        #[default]
        X2apic = "x2apic",
        /// As a page of memory alone.
        Xapic = "xapic",
    }
}

impl Apic {
    /// Returns the most vCPUs: identifiers of eight bits leave one for the broadcast (AMD APM vol. 2, 16.3.3).
    #[must_use]
    pub const fn max_vcpus(self) -> usize {
        match self {
            Apic::X2apic => turnstile_machine::map::MAX_VCPUS,
            Apic::Xapic => 255,
        }
    }
}

impl Pc {
    /// Its name in configurations and bundles.
    pub const NAME: &'static str = "pc";
    /// The most memory in bytes: with what is above the hole below 4 GiB it ends within 40 bits.
    pub const MAX_MEMORY: u64 = (1 << 40) - (1 << 30);

    /// Checks that a VM of `vcpus` vCPUs and `memory` bytes of RAM can be had.
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

impl Machine {
    /// Returns the machine's name in configurations and bundles.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Machine::Arm64(arm64) => arm64.map.name(),
            Machine::Pc(_) => Pc::NAME,
            Machine::Pseries(_) => Pseries::NAME,
        }
    }

    /// Returns the machine if it is one for arm64.
    #[must_use]
    pub const fn arm64(&self) -> Option<&Arm64> {
        match self {
            Machine::Arm64(arm64) => Some(arm64),
            Machine::Pc(_) | Machine::Pseries(_) => None,
        }
    }

    /// Returns the machine if it is a PC.
    #[must_use]
    pub const fn pc(&self) -> Option<&Pc> {
        match self {
            Machine::Arm64(_) | Machine::Pseries(_) => None,
            Machine::Pc(pc) => Some(pc),
        }
    }

    /// Checks that a VM of `vcpus` vCPUs and `memory` bytes of RAM can be had.
    ///
    /// # Errors
    ///
    /// Says which bound does not hold.
    pub fn check(&self, vcpus: usize, memory: u64) -> Result<(), SpecError> {
        match self {
            Machine::Arm64(Arm64 { map, gic, .. }) => {
                map.map().check(gic.on(GicVersion::V3), vcpus, memory).map_err(SpecError::Map)
            }
            Machine::Pc(pc) => pc.check(vcpus, memory),
            Machine::Pseries(pseries) => pseries.check(vcpus, memory),
        }
    }
}

impl Default for Machine {
    fn default() -> Self {
        Machine::Arm64(Arm64::default())
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
