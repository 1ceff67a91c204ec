// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The decision for one CPU.

use core::fmt;

use super::choice::Choice;
use super::cpu::{Cpu, eax21, ebx8, spec_ctrl};
use super::exit::Exit;
use crate::state::{State, name_open};

/// How loads are kept from overtaking stores, for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopBypass {
    /// By SPEC_CTRL, whose value has the bit.
    SpecCtrl,
    /// By VIRT_SPEC_CTRL, on a virtual machine.
    Virtual,
    /// By this bit of LS_CFG.
    LoadStore(u64),
}

/// What is written once, when the CPU starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Once {
    /// Automatic IBRS, in EFER.
    pub auto_ibrs: bool,
    /// LFENCE waits for all before it: a bit of DE_CFG.
    pub serialize: bool,
    /// Speculation of returns is reduced: a bit of BP_CFG.
    pub reduce: bool,
    /// The hypervisor's SPEC_CTRL.
    pub spec_ctrl: u64,
    /// Loads do not overtake stores.
    pub stop_bypass: Option<StopBypass>,
}

/// What is done on a CPU, and how it stands then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// On each exit and entry.
    pub exit: Exit,
    /// IBPB when another vCPU is loaded.
    pub switch_barrier: bool,
    /// When the CPU starts.
    pub once: Once,
    /// Branch targets, of guests for the hypervisor and for each other.
    pub targets: State,
    /// Returns.
    pub returns: State,
    /// The hypervisor's data in buffers.
    pub buffers: State,
    /// Loads that overtake stores.
    pub bypass: State,
}

/// Decides what is done on a CPU.
pub fn decide(cpu: &Cpu, choice: Choice) -> Decision {
    let (exit, once) = match choice {
        Choice::Auto if !cpu.is_emulated() => needed(cpu),
        Choice::Auto | Choice::Off => (Exit::NOTHING, Once::default()),
        Choice::Exit(exit) => (possible(cpu, exit), Once::default()),
    };
    let switch_barrier = choice == Choice::Auto && !cpu.is_emulated() && cpu.has_barrier() && !exit.barrier;
    judge(cpu, exit, switch_barrier, once)
}

/// What of it the CPU can do.
fn possible(cpu: &Cpu, exit: Exit) -> Exit {
    Exit {
        barrier: exit.barrier && cpu.has_barrier(),
        switch: exit.switch && cpu.has_spec_ctrl() && !cpu.switches_spec_ctrl(),
        ..exit
    }
}

/// The least that remedies all, as far as that is possible.
fn needed(cpu: &Cpu) -> (Exit, Once) {
    let once = Once {
        auto_ibrs: cpu.has_21(eax21::AUTO_IBRS),
        // The MSRs that CPUID does not name are a real CPU's; a hypervisor below has set what it wants there.
        serialize: !cpu.virtualized && !cpu.foreign && !cpu.has_21(eax21::LFENCE) && cpu.family != 0x11,
        reduce: !cpu.virtualized && cpu.overflows() && cpu.has_21(eax21::SRSO_MSR_FIX),
        ..Once::default()
    };
    let stop_bypass = if cpu.bypasses() { stop_bypass(cpu) } else { None };
    let stop = if stop_bypass == Some(StopBypass::SpecCtrl) { spec_ctrl::SSBD } else { 0 };
    // Where the CPU prefers it always on, it costs nothing, and keeps the core's other thread out.
    let apart = if cpu.has(ebx8::STIBP) && cpu.has(ebx8::STIBP_ALWAYS) { spec_ctrl::STIBP } else { 0 };
    let once = Once { stop_bypass, spec_ctrl: stop | apart, ..once };
    let barrier = !once.auto_ibrs || cpu.confuses_branches() || cpu.overflows() && !once.reduce;
    let barrier = barrier && cpu.has_barrier();
    let exit = Exit {
        barrier,
        fill: !(cpu.keeps_return_stack_apart(once.auto_ibrs) || barrier && cpu.has(ebx8::IBPB_RET)),
        clear: cpu.tells_data() && cpu.has_21(eax21::VERW_CLEAR),
        switch: cpu.has_spec_ctrl() && !cpu.switches_spec_ctrl(),
    };
    (exit, once)
}

/// How bypass is stopped on a CPU, if it can be.
fn stop_bypass(cpu: &Cpu) -> Option<StopBypass> {
    match cpu.family {
        _ if cpu.has_ssbd() => Some(StopBypass::SpecCtrl),
        _ if cpu.has(ebx8::VIRT_SSBD) => Some(StopBypass::Virtual),
        _ if cpu.virtualized || cpu.foreign => None,
        0x15 => Some(StopBypass::LoadStore(1 << 54)),
        0x16 => Some(StopBypass::LoadStore(1 << 33)),
        0x17 | 0x18 => Some(StopBypass::LoadStore(1 << 10)),
        _ => None,
    }
}

fn judge(cpu: &Cpu, exit: Exit, switch_barrier: bool, once: Once) -> Decision {
    let real = !cpu.is_emulated();
    let stack =
        cpu.keeps_return_stack_apart(once.auto_ibrs) || exit.fill || exit.barrier && cpu.has(ebx8::IBPB_RET);
    let types = !cpu.confuses_branches() || exit.barrier;
    let overflow = !cpu.overflows() || once.reduce || exit.barrier && cpu.barrier_is_whole();
    Decision {
        exit,
        switch_barrier,
        once,
        targets: State::of(real, exit.barrier || once.auto_ibrs && switch_barrier),
        returns: State::of(real, stack && types && overflow),
        buffers: State::of(real && cpu.tells_data(), exit.clear && cpu.has_21(eax21::VERW_CLEAR)),
        bypass: State::of(cpu.bypasses(), once.stop_bypass.is_some()),
    }
}

impl Decision {
    /// Whether there is something to say of it: something is done, or is not and should be.
    pub fn is_remarkable(&self) -> bool {
        let states = [self.targets, self.returns, self.buffers, self.bypass];
        self.exit != Exit::NOTHING || states.iter().any(|state| *state != State::Unaffected)
    }
}

/// Writes the words that hold, behind each other.
fn list(f: &mut fmt::Formatter<'_>, words: &[(bool, &str)]) -> fmt::Result {
    let mut words = words.iter().filter(|(holds, _)| *holds).map(|(_, word)| word);
    match words.next() {
        None => write!(f, "nothing"),
        Some(first) => {
            write!(f, "{first}")?;
            words.try_for_each(|word| write!(f, ", {word}"))
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Exit { barrier, fill, clear, switch } = self.exit;
        write!(f, "on each exit ")?;
        list(f, &[(barrier, "IBPB"), (fill, "return stack"), (switch, "SPEC_CTRL"), (clear, "VERW")])?;
        write!(f, "; between vCPUs ")?;
        list(f, &[(self.switch_barrier, "IBPB")])?;
        write!(f, "; for good ")?;
        let once = &self.once;
        list(
            f,
            &[
                (once.auto_ibrs, "Automatic IBRS"),
                (once.reduce, "BP_CFG"),
                (once.serialize, "DE_CFG"),
                (once.stop_bypass.is_some(), "SSBD"),
                (once.spec_ctrl & spec_ctrl::STIBP != 0, "STIBP"),
            ],
        )?;
        name_open(
            f,
            &[
                (self.targets, "branch targets"),
                (self.returns, "returns"),
                (self.buffers, "buffers"),
                (self.bypass, "store bypass"),
            ],
        )
    }
}
