// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which parts of KVM's paravirtual interface a guest is offered.

use core::fmt;

use turnstile_x86policy::features::kvm;

/// A part of the interface (Linux, `Documentation/virt/kvm/x86/cpuid.rst`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Feature {
    /// The clock: `KVM_FEATURE_CLOCKSOURCE2`.
    Clock,
    /// Ends of interrupts without an exit: `KVM_FEATURE_PV_EOI`.
    Eoi,
    /// One hypercall for interrupts to many vCPUs: `KVM_FEATURE_PV_SEND_IPI`.
    Ipi,
    /// Flushes of translations that are left to the next entry: `KVM_FEATURE_PV_TLB_FLUSH`.
    TlbFlush,
    /// Time that others ran: `KVM_FEATURE_STEAL_TIME`.
    StealTime,
    /// Waiting for a lock by `HLT`, and waking who waits: `KVM_FEATURE_PV_UNHALT`.
    Unhalt,
    /// Whether the host polls when a vCPU waits: `KVM_FEATURE_POLL_CONTROL`.
    PollControl,
}

impl Feature {
    /// Every part, in the order in which messages list them.
    pub const ALL: [Feature; 7] = [
        Feature::Clock,
        Feature::Eoi,
        Feature::Ipi,
        Feature::TlbFlush,
        Feature::StealTime,
        Feature::Unhalt,
        Feature::PollControl,
    ];

    /// Returns its name in configurations and bundles.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Feature::Clock => "clock",
            Feature::Eoi => "eoi",
            Feature::Ipi => "ipi",
            Feature::TlbFlush => "tlb-flush",
            Feature::StealTime => "steal-time",
            Feature::Unhalt => "unhalt",
            Feature::PollControl => "poll-control",
        }
    }

    /// Returns its bits of EAX of KVM's CPUID leaf 4000_0001.
    #[must_use]
    pub const fn bits(self) -> u32 {
        match self {
            Feature::Clock => kvm::CLOCKSOURCE | kvm::CLOCKSOURCE2 | kvm::CLOCKSOURCE_STABLE,
            Feature::Eoi => kvm::PV_EOI,
            Feature::Ipi => kvm::PV_SEND_IPI,
            Feature::TlbFlush => kvm::PV_TLB_FLUSH,
            Feature::StealTime => kvm::STEAL_TIME,
            Feature::Unhalt => kvm::PV_UNHALT,
            Feature::PollControl => kvm::POLL_CONTROL,
        }
    }

    /// Returns the part of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|feature| feature.name() == name)
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The parts that a guest is offered. By default all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Paravirt(u8);

impl Paravirt {
    /// All parts.
    pub const ALL: Paravirt = Paravirt((1 << Feature::ALL.len()) - 1);
    /// No part: the guest is not told that there is such an interface.
    pub const NONE: Paravirt = Paravirt(0);

    /// Says whether a part is offered.
    #[must_use]
    pub const fn has(self, feature: Feature) -> bool {
        self.0 & 1 << feature as u8 != 0
    }

    /// Returns these parts and another one.
    #[must_use]
    pub const fn with(self, feature: Feature) -> Self {
        Paravirt(self.0 | 1 << feature as u8)
    }

    /// Returns these parts without one.
    #[must_use]
    pub const fn without(self, feature: Feature) -> Self {
        Paravirt(self.0 & !(1 << feature as u8))
    }

    /// Returns the parts in their order.
    pub fn iter(self) -> impl Iterator<Item = Feature> + Clone {
        Feature::ALL.into_iter().filter(move |&feature| self.has(feature))
    }
}

impl Default for Paravirt {
    fn default() -> Self {
        Paravirt::ALL
    }
}
