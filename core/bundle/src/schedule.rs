// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who runs on the physical CPUs of a VM, and how its vCPUs compete for them.

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
