// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the firmware offers, and what guests are told (SMCCC, DEN0028, section 7).

/// SMCCC_VERSION.
const VERSION: u32 = 0x8000_0000;
/// SMCCC_ARCH_FEATURES.
const FEATURES: u32 = 0x8000_0001;
/// SMCCC_ARCH_WORKAROUND_1: against targets.
pub(crate) const WORKAROUND_1: u32 = 0x8000_8000;
/// SMCCC_ARCH_WORKAROUND_2: against bypass; its argument is 1 for on.
const WORKAROUND_2: u32 = 0x8000_7fff;
/// SMCCC_ARCH_WORKAROUND_3: against targets and history.
pub(crate) const WORKAROUND_3: u32 = 0x8000_3fff;
/// PSCI_VERSION and PSCI_FEATURES (DEN0022): the only way to ask whether SMCCC_VERSION may be called.
const PSCI_VERSION: u32 = 0x8400_0000;
const PSCI_FEATURES: u32 = 0x8400_000a;
const NOT_REQUIRED: i32 = -2;

/// What the firmware says of one workaround.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Answer {
    /// There is no such call.
    #[default]
    Absent,
    /// The calling CPU needs the call.
    Required,
    /// The calling CPU does not need it.
    NotRequired,
}

/// What the firmware says on one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Firmware {
    /// SMCCC_ARCH_WORKAROUND_1.
    pub first: Answer,
    /// SMCCC_ARCH_WORKAROUND_2.
    pub second: Answer,
    /// SMCCC_ARCH_WORKAROUND_3.
    pub third: Answer,
}

impl Firmware {
    /// No firmware, or one that knows nothing of workarounds.
    pub const NONE: Self = Self { first: Answer::Absent, second: Answer::Absent, third: Answer::Absent };

    /// Asks it on the calling CPU: `call` takes W0 and X1, and returns W0. Nothing is called before it is known that
    /// the firmware knows it.
    pub fn ask(mut call: impl FnMut(u32, u32) -> i32) -> Self {
        if call(PSCI_VERSION, 0) < 0x1_0000 || call(PSCI_FEATURES, VERSION) < 0 || call(VERSION, 0) < 0x1_0001
        {
            return Self::NONE;
        }
        let mut answer = |workaround| match call(FEATURES, workaround) {
            0 => Answer::Required,
            1 => Answer::NotRequired,
            // Only this workaround has such an answer: no CPU of the machine needs it.
            NOT_REQUIRED if workaround == WORKAROUND_2 => Answer::NotRequired,
            _ => Answer::Absent,
        };
        Self { first: answer(WORKAROUND_1), second: answer(WORKAROUND_2), third: answer(WORKAROUND_3) }
    }

    /// Turns the remedy for bypass on for the calling CPU, for good.
    pub fn stop_bypass(mut call: impl FnMut(u32, u32) -> i32) {
        call(WORKAROUND_2, 1);
    }
}

/// What SMCCC_ARCH_FEATURES answers a guest for the three workarounds.
///
/// A guest's call is an exit, and each exit does what the CPU needs before anything else: so the calls themselves have
/// nothing left to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answers {
    /// SMCCC_ARCH_WORKAROUND_1: 0 call it, 1 not needed, −1 vulnerable.
    pub first: i32,
    /// SMCCC_ARCH_WORKAROUND_2: −2 not needed, −1 no such call.
    pub second: i32,
    /// SMCCC_ARCH_WORKAROUND_3: as for 1.
    pub third: i32,
}

impl Answers {
    /// Where nothing is known: no call.
    pub const UNKNOWN: Self = Self { first: -1, second: -1, third: -1 };
    /// What holds for no CPU at all: each CPU makes it worse, or not.
    pub const BEST: Self = Self { first: 1, second: NOT_REQUIRED, third: 1 };

    /// What holds on both of two CPUs.
    #[must_use = "neither changes"]
    pub fn worst(self, other: Self) -> Self {
        Self {
            first: self.first.min(other.first),
            second: self.second.max(other.second),
            third: self.third.min(other.third),
        }
    }
}
