// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the firmware says of the machine.

/// What the firmware says of one feature.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Said {
    /// Nothing.
    #[default]
    Nothing,
    /// It is there, or so it is.
    Enabled,
    /// It is not.
    Disabled,
}

macro_rules! features {
    ($($(#[$doc:meta])* $variant:ident = $name:literal;)+) => {
        /// A feature that the firmware may speak of.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Feature { $($(#[$doc])* $variant),+ }

        impl Feature {
            /// Every feature.
            pub const ALL: &'static [Feature] = &[$(Feature::$variant),+];

            /// Returns the name of its node.
            pub const fn name(self) -> &'static str {
                match self { $(Feature::$variant => $name),+ }
            }
        }
    };
}

features! {
    /// `ori 31,31,0` is a barrier against speculation.
    BarrierInstruction = "inst-spec-barrier-ori31,31,0";
    /// Indirect branches wait for their target.
    SerialisedBranches = "fw-bcctrl-serialized";
    /// `ori 30,30,0` flushes the first-level data cache.
    CacheInstruction = "inst-l1d-flush-ori30,30,0";
    /// A write of TRIG2 flushes it.
    CacheRegister = "inst-l1d-flush-trig2";
    /// The threads of a core do not see each other's lines.
    CacheOfThreads = "fw-l1d-thread-split";
    /// Targets of indirect branches are not predicted.
    NoCountCache = "fw-count-cache-disabled";
    /// `bcctr 2,0,0` flushes the count cache.
    CountCacheInstruction = "fw-count-cache-flush-bcctr2,0,0";
    /// The count cache has to be flushed between those who do not trust each other.
    NeedsCountCacheFlush = "needs-count-cache-flush-on-context-switch";
    /// Security goes before speed.
    FavourSecurity = "speculation-policy-favor-security";
    /// The data cache has to be flushed on the way from a kernel to its programs.
    NeedsCacheFlushForPrograms = "needs-l1d-flush-msr-pr-0-to-1";
    /// It has to be flushed on the way from the hypervisor to a guest.
    NeedsCacheFlushForGuests = "needs-l1d-flush-msr-hv-1-to-0";
    /// A barrier has to follow a bounds check.
    NeedsBoundsBarrier = "needs-spec-barrier-for-bound-checks";
    /// The data cache need not be flushed on the way from a program to its kernel.
    NoCacheFlushOfPrograms = "no-need-l1d-flush-msr-pr-1-to-0";
    /// Nor behind a kernel's accesses to its programs' memory.
    NoCacheFlushOfAccesses = "no-need-l1d-flush-kernel-on-user-access";
    /// Stores need not be drained between states of different privilege.
    NoStoreDrain = "no-need-store-drain-on-priv-state-switch";
}

/// What the firmware says of all features.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features([Said; Feature::ALL.len()]);

impl Features {
    /// Reads them: `said` finds what there is of the node with a name.
    pub fn read(said: impl Fn(&str) -> Said) -> Self {
        let mut features = Self::default();
        for (slot, feature) in features.0.iter_mut().zip(Feature::ALL) {
            *slot = said(feature.name());
        }
        features
    }

    /// What it says of one.
    pub fn of(&self, feature: Feature) -> Said {
        self.0.get(feature as usize).copied().unwrap_or_default()
    }

    /// Whether it says that a feature is there.
    pub fn has(&self, feature: Feature) -> bool {
        self.of(feature) == Said::Enabled
    }

    /// Whether a remedy is needed that is taken to be needed where nothing is said.
    pub fn needs(&self, feature: Feature) -> bool {
        self.of(feature) != Said::Disabled
    }
}

/// A machine, as far as it concerns speculation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// It is an emulator's that executes one instruction behind the other: it needs nothing, unless its firmware speaks of features.
    pub in_order: bool,
    /// Its processors are POWER9.
    pub power9: bool,
    /// What its firmware says; `None` if it says nothing at all.
    pub features: Option<Features>,
}

impl Machine {
    /// Whether it does not speculate.
    pub(crate) const fn is_needless(&self) -> bool {
        self.in_order && self.features.is_none()
    }

    /// What its firmware says of all features.
    pub(crate) fn said(&self) -> Features {
        self.features.unwrap_or_default()
    }
}
