// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine that a guest sees, with what can be chosen about it.

use core::fmt;

use turnstile_machine::{Flat, GicVersion, GuestMachine, pseries};

use crate::choices::choices;
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
    /// What its kernel's file is.
    pub format: Format,
    /// The bytes of each bank of flash; zero if there is none.
    pub flash: u64,
    /// How it reaches its virtio devices.
    pub virtio: Transport,
}

/// What the file of a kernel for arm64 is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// An arm64 `Image`, whose header says where it goes.
    #[default]
    Image,
    /// Bytes without a header.
    Flat(Flat),
}

impl Format {
    /// The name of [`Format::Image`] in configurations and bundles.
    pub const IMAGE: &'static str = "image";
    /// The name of [`Format::Flat`] in configurations and bundles.
    pub const FLAT: &'static str = "flat";

    /// Returns the name in configurations and bundles.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Format::Image => Format::IMAGE,
            Format::Flat(_) => Format::FLAT,
        }
    }
}

impl Arm64 {
    /// Returns the bytes of all banks of flash.
    #[must_use]
    pub fn flash_bytes(&self) -> u64 {
        self.map.map().flash_banks(self.flash).map(|bank| bank.size).sum()
    }
}

/// A PC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pc {
    /// How its local APICs are reached.
    pub apic: Apic,
    /// What of KVM's paravirtual interface it offers.
    pub paravirt: Paravirt,
    /// What a shutdown of one of its processors is.
    pub triple_fault: TripleFault,
}

/// A partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pseries {
    /// Its interrupt controller.
    pub interrupts: Interrupts,
    /// How many of its vCPUs are the threads of a core: one of [`pseries::THREADS`].
    pub threads: u8,
}

impl Default for Pseries {
    fn default() -> Self {
        Self { interrupts: Interrupts::default(), threads: 1 }
    }
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
    /// How a guest reaches its virtio devices.
    Transport {
        /// As PCI functions.
        #[default]
        Pci = "pci",
        /// By a window of registers each (virtio 1.2, section 4.2). There is no PCI then.
        Mmio = "mmio",
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

choices! {
    /// What it is when a processor of a PC shuts down, because a fault could not be delivered, nor the double fault.
    TripleFault {
        /// A reset, as the chip set of a PC makes it one.
        #[default]
        Reset = "reset",
        /// A crash of the guest.
        Crash = "crash",
    }
}

impl Pc {
    /// Its name in configurations and bundles.
    pub const NAME: &'static str = "pc";
    /// The most memory in bytes: with what is above the hole below 4 GiB it ends within 40 bits.
    pub const MAX_MEMORY: u64 = (1 << 40) - (1 << 30);
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
