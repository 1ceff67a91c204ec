// SPDX-License-Identifier: Apache-2.0 OR MIT
//! PSCI 1.1 (Arm DEN0022) and the discovery calls of SMCCC 1.1 (DEN0028), as a guest sees them.
//!
//! [`Psci::answer`] answers, without side effects, the calls that only ask; they make light exits. [`Psci::call`]
//! does the rest and says what the caller must do about it. The power states of the vCPUs are in `power`.

use alloc::vec::Vec;
use core::ops::Range;

use turnstile_mitigation::arm64::Answers;
use turnstile_trapmap::CallMap;

pub use crate::power::Start;
use crate::power::{Power, State};
use crate::stolen::{PV_TIME_FEATURES, PV_TIME_ST, RECORD};

/// Success.
pub const SUCCESS: u64 = 0;
/// NOT_SUPPORTED, also the answer to an unknown function (DEN0028).
pub const NOT_SUPPORTED: u64 = -1i64 as u64;
/// INVALID_PARAMETERS.
pub const INVALID_PARAMETERS: u64 = -2i64 as u64;
/// ALREADY_ON.
pub const ALREADY_ON: u64 = -4i64 as u64;
/// ON_PENDING.
pub const ON_PENDING: u64 = -5i64 as u64;
/// INVALID_ADDRESS.
pub const INVALID_ADDRESS: u64 = -9i64 as u64;

const PSCI_1_1: u32 = 0x0001_0001;
const SMCCC_1_1: u32 = 0x0001_0001;
/// MIGRATE_INFO_TYPE: no Trusted OS, or one that needs no migration.
const MIGRATION_NOT_REQUIRED: u32 = 2;
/// SMCCC_VERSION and SMCCC_ARCH_FEATURES.
const SMCCC_VERSION: u32 = 0x8000_0000;
const ARCH_FEATURES: u32 = 0x8000_0001;
/// SMCCC_ARCH_WORKAROUND_1, 2 and 3.
const WORKAROUND_1: u32 = 0x8000_8000;
const WORKAROUND_2: u32 = 0x8000_7fff;
const WORKAROUND_3: u32 = 0x8000_3fff;

/// The affinity fields of an MPIDR: Aff3 in bits [39:32], Aff2 to Aff0 in [23:0].
const AFFINITY: u64 = 0xff_00ff_ffff;

/// A call this module knows, whatever its calling convention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    Unknown,
    /// Always answered with this value: in the table, so that the shortest exit is a lookup and nothing else.
    Constant(u32),
    CpuSuspend,
    CpuOff,
    CpuOn,
    AffinityInfo,
    SystemOff,
    SystemReset,
    Features,
    SystemReset2,
    ArchFeatures,
    /// PV_TIME_FEATURES and PV_TIME_ST: stolen time (DEN0057).
    TimeFeatures,
    StolenTime,
}

/// The calls by function identifier; bit 30 set is the 64-bit convention.
const CALLS: [(u32, Function); 20] = [
    (0x8400_0000, Function::Constant(PSCI_1_1)),
    (0x8400_0001, Function::CpuSuspend),
    (0xc400_0001, Function::CpuSuspend),
    (0x8400_0002, Function::CpuOff),
    (0x8400_0003, Function::CpuOn),
    (0xc400_0003, Function::CpuOn),
    (0x8400_0004, Function::AffinityInfo),
    (0xc400_0004, Function::AffinityInfo),
    (0x8400_0006, Function::Constant(MIGRATION_NOT_REQUIRED)),
    (0x8400_0008, Function::SystemOff),
    (0x8400_0009, Function::SystemReset),
    (0x8400_000a, Function::Features),
    (0x8400_0012, Function::SystemReset2),
    (0xc400_0012, Function::SystemReset2),
    (SMCCC_VERSION, Function::Constant(SMCCC_1_1)),
    (ARCH_FEATURES, Function::ArchFeatures),
    // The exit that the call is has done it, where the CPU needs it. The second one is never offered.
    (WORKAROUND_1, Function::Constant(0)),
    (WORKAROUND_3, Function::Constant(0)),
    (PV_TIME_FEATURES, Function::TimeFeatures),
    (PV_TIME_ST, Function::StolenTime),
];

static FUNCTIONS: CallMap<Function, 128> = CallMap::new(Function::Unknown, &CALLS);

/// In [`ANSWERS`]: the answer depends on something.
const DEPENDS: u32 = 1 << 31;

/// The answers that calls always have, or [`DEPENDS`]: eight bytes for each, so that the shortest exit is a lookup and nothing
/// else. What is not in it is unknown.
static ANSWERS: CallMap<u32, 128> = CallMap::new(DEPENDS, &answers());

const fn answers() -> [(u32, u32); CALLS.len()] {
    let mut answers = [(0, DEPENDS); CALLS.len()];
    let mut next = 0;
    while next < CALLS.len() {
        answers[next].0 = CALLS[next].0;
        if let Function::Constant(answer) = CALLS[next].1 {
            assert!(answer < DEPENDS, "an answer that says that it is none");
            answers[next].1 = answer;
        }
        next += 1;
    }
    answers
}

/// What the caller must do about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Put the value in X0 and go on.
    Return(u64),
    /// Raise [`crate::attention::Reasons::START`] with this vCPU, whose owner then calls [`Psci::take_start`];
    /// put [`SUCCESS`] in the caller's X0.
    Start(usize),
    /// Put [`SUCCESS`] in X0 and wait for a wake-up event, as for a WFI. All suspend states are treated as
    /// standby, as DEN0022 allows ("downgrade").
    Suspend,
    /// Stop running this vCPU: it is off until [`Psci::take_start`].
    Off,
    /// Stop the VM.
    SystemOff,
    /// Reset the VM.
    SystemReset,
}

/// The power states of a VM's vCPUs.
#[derive(Debug)]
pub struct Psci {
    vcpus: Vec<Power>,
    ram: Range<u64>,
    workarounds: Answers,
    /// Where the records of stolen time are, if there are any.
    stolen: Option<u64>,
}

impl Psci {
    /// Makes the states of a VM whose vCPU `i` has the affinity fields of `mpidrs[i]` and whose memory is `ram`.
    /// All vCPUs are off. Nothing is known of the workarounds ([`Psci::with_workarounds`]).
    pub fn new(mpidrs: impl IntoIterator<Item = u64>, ram: Range<u64>) -> Self {
        let power = |mpidr: u64| Power::new(mpidr & AFFINITY);
        let workarounds = Answers::UNKNOWN;
        Self { vcpus: mpidrs.into_iter().map(power).collect(), ram, workarounds, stolen: None }
    }

    /// Says what SMCCC_ARCH_FEATURES answers for the workarounds of speculative execution.
    #[must_use = "the states are moved"]
    pub fn with_workarounds(self, workarounds: Answers) -> Self {
        Self { workarounds, ..self }
    }

    /// Offers stolen time: vCPU `i` has the `i`-th record from the guest physical address `base` on.
    #[must_use = "the states are moved"]
    pub fn with_stolen_time(self, base: u64) -> Self {
        Self { stolen: Some(base), ..self }
    }

    /// Turns all vCPUs off and gives the boot vCPU, number 0, its start. Only while none of them runs.
    pub fn reset(&self, boot: Start) {
        self.vcpus.iter().for_each(Power::reset);
        if let Some(power) = self.vcpus.first() {
            power.publish(boot);
        }
    }

    /// Takes the start of a vCPU that was turned on, once; it is on from then. For its owner.
    pub fn take_start(&self, vcpu: usize) -> Option<Start> {
        self.vcpus.get(vcpu)?.take_start()
    }

    /// Says whether a vCPU is on: it runs, or waits, and was not turned off.
    pub fn is_on(&self, vcpu: usize) -> bool {
        self.vcpus.get(vcpu).is_some_and(|power| power.state() == State::On)
    }

    /// Answers a call that only asks, the unknown ones included; `None` if it must go to [`Psci::call`].
    /// `function` is W0, `first` and `second` are X1 and X2; the value is for X0. HOT.
    pub fn answer(&self, function: u32, first: u64, second: u64) -> Option<u64> {
        match FUNCTIONS.lookup(function) {
            Function::Constant(value) => Some(value.into()),
            Function::Features => Some(features(first as u32)),
            Function::ArchFeatures if first as u32 == PV_TIME_FEATURES => {
                Some(self.time_features(first as u32))
            }
            Function::ArchFeatures => Some(self.arch_features(first as u32)),
            Function::TimeFeatures => Some(self.time_features(first as u32)),
            Function::AffinityInfo => {
                Some(self.affinity_info(argument(function, first), argument(function, second)))
            }
            Function::Unknown => Some(NOT_SUPPORTED),
            Function::StolenTime
            | Function::CpuSuspend
            | Function::CpuOff
            | Function::CpuOn
            | Function::SystemOff
            | Function::SystemReset
            | Function::SystemReset2 => None,
        }
    }

    /// Carries out a call of `vcpu`: `function` is its W0, `arguments` its X1 to X3.
    pub fn call(&self, vcpu: usize, function: u32, arguments: [u64; 3]) -> Action {
        let [first, second, third] = arguments.map(|value| argument(function, value));
        if let Some(value) = self.answer(function, first, second) {
            return Action::Return(value);
        }
        match FUNCTIONS.lookup(function) {
            Function::CpuOn => self.cpu_on(first, Start { entry: second, context: third }),
            Function::CpuOff => self.cpu_off(vcpu),
            Function::StolenTime => {
                Action::Return(self.stolen.map_or(NOT_SUPPORTED, |base| base + vcpu as u64 * RECORD))
            }
            Function::CpuSuspend => self.cpu_suspend(first, second),
            Function::SystemOff => Action::SystemOff,
            Function::SystemReset => Action::SystemReset,
            // Architectural resets only (bit 31 clear): type 0, the warm reset.
            Function::SystemReset2 if first as u32 == 0 => Action::SystemReset,
            Function::SystemReset2 => Action::Return(INVALID_PARAMETERS),
            _ => Action::Return(NOT_SUPPORTED),
        }
    }

    /// PV_TIME_FEATURES.
    fn time_features(&self, function: u32) -> u64 {
        let known = matches!(function, PV_TIME_FEATURES | PV_TIME_ST);
        if known && self.stolen.is_some() { SUCCESS } else { NOT_SUPPORTED }
    }

    /// CPU_ON: of several callers, one wins.
    fn cpu_on(&self, target: u64, start: Start) -> Action {
        let Some((vcpu, power)) = self.vcpus.iter().enumerate().find(|(_, power)| power.mpidr() == target)
        else {
            return Action::Return(INVALID_PARAMETERS);
        };
        if !self.is_entry(start.entry) {
            return Action::Return(INVALID_ADDRESS);
        }
        match power.turn_on(start) {
            State::Off => Action::Start(vcpu),
            State::On => Action::Return(ALREADY_ON),
            State::Pending => Action::Return(ON_PENDING),
        }
    }

    /// CPU_OFF: it never fails here, there is no Trusted OS to deny it.
    fn cpu_off(&self, vcpu: usize) -> Action {
        if let Some(power) = self.vcpus.get(vcpu) {
            power.turn_off();
        }
        Action::Off
    }

    /// CPU_SUSPEND, with the original format of the power state: StateID in bits [15:0],
    /// StateType (1 is power-down) in bit 16, PowerLevel in bits [25:24].
    fn cpu_suspend(&self, power_state: u64, entry: u64) -> Action {
        const VALID: u64 = 0x0301_ffff;
        const POWER_DOWN: u64 = 1 << 16;
        if power_state & !VALID != 0 {
            return Action::Return(INVALID_PARAMETERS);
        }
        if power_state & POWER_DOWN != 0 && !self.is_entry(entry) {
            return Action::Return(INVALID_ADDRESS);
        }
        Action::Suspend
    }

    /// AFFINITY_INFO: 0 if any vCPU in the affinity instance is on, else 2 if any is about
    /// to be, else 1.
    fn affinity_info(&self, target: u64, level: u64) -> u64 {
        let compared = match level {
            0 => AFFINITY,
            1 => AFFINITY & !0xff,
            2 => AFFINITY & !0xffff,
            3 => AFFINITY & !0xff_ffff,
            _ => return INVALID_PARAMETERS,
        };
        if target & !AFFINITY != 0 {
            return INVALID_PARAMETERS;
        }
        let mut info = INVALID_PARAMETERS;
        for power in self.vcpus.iter().filter(|power| (power.mpidr() ^ target) & compared == 0) {
            info = match (power.state(), info) {
                (State::On, _) => return 0,
                (State::Off, INVALID_PARAMETERS) => 1,
                (State::Off, found) => found,
                (State::Pending, _) => 2,
            };
        }
        info
    }

    /// SMCCC_ARCH_FEATURES.
    fn arch_features(&self, function: u32) -> u64 {
        let answer = match function {
            SMCCC_VERSION | ARCH_FEATURES => 0,
            WORKAROUND_1 => self.workarounds.first,
            WORKAROUND_2 => self.workarounds.second,
            WORKAROUND_3 => self.workarounds.third,
            _ => return NOT_SUPPORTED,
        };
        i64::from(answer) as u64
    }

    fn is_entry(&self, address: u64) -> bool {
        self.ram.contains(&address) && address.is_multiple_of(4)
    }
}

/// Answers the calls whose answer never changes, and the unknown ones; `None` for all others, which [`Psci::answer`] may
/// know. `function` is W0, the value is for X0. HOT: one lookup.
// Inlined: the shortest exit there is consists of little else.
#[inline(always)]
pub fn constant(function: u32) -> Option<u64> {
    match ANSWERS.find(function) {
        None => Some(NOT_SUPPORTED),
        Some(answer) if answer & DEPENDS == 0 => Some(answer.into()),
        Some(_) => None,
    }
}

/// Takes an argument as the function's calling convention passes it: 32 bits unless bit 30 is set.
fn argument(function: u32, value: u64) -> u64 {
    if function & 1 << 30 == 0 { value & 0xffff_ffff } else { value }
}

/// PSCI_FEATURES: the known functions have no optional features.
fn features(function: u32) -> u64 {
    match FUNCTIONS.lookup(function) {
        Function::Unknown | Function::ArchFeatures | Function::TimeFeatures | Function::StolenTime => {
            NOT_SUPPORTED
        }
        // Of the SMCCC's own functions this call knows the version only.
        _ if matches!(function, WORKAROUND_1 | WORKAROUND_3) => NOT_SUPPORTED,
        _ => SUCCESS,
    }
}
