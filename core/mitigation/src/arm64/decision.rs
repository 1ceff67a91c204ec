// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The decision for one CPU.

use core::fmt;

use super::choice::Choice;
use super::cores::{Cpu, Known};
use super::firmware::{Answer, Answers, Firmware, WORKAROUND_1, WORKAROUND_3};
use crate::state::{State, name_open};

/// Turns of the loop on a core that nobody has listed: enough for most, known to be enough for none.
const UNLISTED_TURNS: u16 = 32;

/// What is done first on each exit from a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Nothing.
    Nothing,
    /// CLRBHB.
    Clear,
    /// A loop of so many turns, each with two taken branches, which leave nothing of the guest's history.
    Loop(u16),
    /// This call of the firmware.
    Firmware(u32),
    /// The loop, and then the call, which does not clear the history.
    LoopAndFirmware(u16, u32),
}

impl Exit {
    /// Turns of the loop.
    pub const fn turns(self) -> Option<u16> {
        match self {
            Self::Loop(turns) | Self::LoopAndFirmware(turns, _) => Some(turns),
            _ => None,
        }
    }

    /// The function identifier of the call.
    pub const fn call(self) -> Option<u32> {
        match self {
            Self::Firmware(call) | Self::LoopAndFirmware(_, call) => Some(call),
            _ => None,
        }
    }
}

/// What is done on a CPU, and how it stands then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What each exit does.
    pub exit: Exit,
    /// Whether the firmware is to stop bypass, once.
    pub stop_bypass: bool,
    /// Branch targets.
    pub targets: State,
    /// Branch history.
    pub history: State,
    /// Loads that overtake stores.
    pub bypass: State,
}

/// Decides what is done on a CPU.
pub fn decide(cpu: &Cpu, firmware: Firmware, choice: Choice) -> Decision {
    let exit = match choice {
        Choice::Auto => needed(cpu, firmware),
        Choice::Off => Exit::Nothing,
        Choice::Loop(turns) => Exit::Loop(turns),
        Choice::Firmware => match (firmware.third, firmware.first) {
            (Answer::Absent, Answer::Absent) => Exit::Nothing,
            (Answer::Absent, _) => Exit::Firmware(WORKAROUND_1),
            (_, _) => Exit::Firmware(WORKAROUND_3),
        },
    };
    let stop_bypass = choice == Choice::Auto && bypass(cpu, firmware) && firmware.second == Answer::Required;
    Decision {
        exit,
        stop_bypass,
        targets: State::of(
            targets(cpu, firmware),
            exit.call().is_some_and(|call| against_targets(firmware, call)),
        ),
        history: State::of(history(cpu, firmware).is_some(), clears(cpu, firmware, exit)),
        // EL2 runs with PSTATE.SSBS = 0, because SCTLR_EL2.DSSBS is 0; guests have a bit of their own.
        bypass: State::of(bypass(cpu, firmware), stop_bypass || cpu.ssbs()),
    }
}

/// Whether a guest's branch targets may steer it.
fn targets(cpu: &Cpu, firmware: Firmware) -> bool {
    let kept = matches!(cpu.known(), Known::Harmless | Known::NotSteered | Known::TargetsKept);
    cpu.csv2() == 0 && !kept && firmware.first != Answer::NotRequired
}

/// What clears a CPU's branch history, if a guest's may steer it.
fn history(cpu: &Cpu, firmware: Firmware) -> Option<Known> {
    match cpu.known() {
        _ if cpu.csv2() >= 3 || cpu.ecbhb() => None,
        Known::Harmless | Known::NotSteered => None,
        listed @ Known::Loop(_) => Some(listed),
        _ if firmware.third == Answer::NotRequired => None,
        known => Some(known),
    }
}

/// Whether loads may overtake stores where that can be used.
fn bypass(cpu: &Cpu, firmware: Firmware) -> bool {
    cpu.known() != Known::Harmless && firmware.second != Answer::NotRequired
}

/// The least that remedies targets and history on a CPU, as far as that is possible.
fn needed(cpu: &Cpu, firmware: Firmware) -> Exit {
    let call = match targets(cpu, firmware) {
        // One call does both.
        true if firmware.third == Answer::Required => return Exit::Firmware(WORKAROUND_3),
        true if firmware.first == Answer::Required => Some(WORKAROUND_1),
        _ => None,
    };
    let turns = match history(cpu, firmware) {
        None => None,
        Some(_) if cpu.clrbhb() && call.is_none() => return Exit::Clear,
        Some(Known::Loop(turns)) => Some(turns),
        Some(_) if firmware.third == Answer::Required => return Exit::Firmware(WORKAROUND_3),
        Some(Known::ByFirmware) => None,
        Some(_) => Some(UNLISTED_TURNS),
    };
    match (turns, call) {
        (None, None) => Exit::Nothing,
        (Some(turns), None) => Exit::Loop(turns),
        (None, Some(call)) => Exit::Firmware(call),
        (Some(turns), Some(call)) => Exit::LoopAndFirmware(turns, call),
    }
}

fn against_targets(firmware: Firmware, call: u32) -> bool {
    match call {
        WORKAROUND_1 => firmware.first == Answer::Required,
        _ => firmware.third == Answer::Required,
    }
}

/// Whether what an exit does clears the CPU's branch history.
fn clears(cpu: &Cpu, firmware: Firmware, exit: Exit) -> bool {
    let enough = |turns| matches!(cpu.known(), Known::Loop(least) if turns >= least);
    let called = exit.call() == Some(WORKAROUND_3) && firmware.third == Answer::Required;
    exit == Exit::Clear || called || exit.turns().is_some_and(enough)
}

impl Decision {
    /// What guests are told on this CPU.
    pub fn answers(&self) -> Answers {
        let call = |state| match state {
            State::Unaffected => 1,
            State::Mitigated => 0,
            State::Vulnerable => -1,
        };
        // With PSTATE.SSBS a guest stops bypass by itself, and there is no call for it.
        let done = self.bypass == State::Unaffected || self.stop_bypass;
        Answers {
            first: call(self.targets),
            second: if done { Answers::BEST.second } else { -1 },
            third: call(self.history),
        }
    }

    /// Whether there is something to say of it: something is done on exits, or is not and should be.
    pub fn is_remarkable(&self) -> bool {
        self.exit != Exit::Nothing || [self.targets, self.history, self.bypass].contains(&State::Vulnerable)
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.exit {
            Exit::Nothing => write!(f, "nothing is done on exits")?,
            Exit::Clear => write!(f, "CLRBHB on each exit")?,
            Exit::Loop(turns) => write!(f, "a loop of {turns} on each exit")?,
            Exit::Firmware(call) => write!(f, "firmware call {call:#x} on each exit")?,
            Exit::LoopAndFirmware(turns, call) => {
                write!(f, "a loop of {turns} and firmware call {call:#x} on each exit")?;
            }
        }
        let weaknesses = [
            (self.targets, "branch targets"),
            (self.history, "branch history"),
            (self.bypass, "store bypass"),
        ];
        name_open(f, &weaknesses)
    }
}
