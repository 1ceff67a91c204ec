// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keeping guests from steering the hypervisor's speculation: each CPU gets what it needs, at boot.
//!
//! What that is, `turnstile_mitigation` decides. A CPU that needs something on each exit takes exceptions by a guarded
//! copy of its vector table (`guards.S`); one that needs nothing uses the table that knows nothing of it.

use spin::Mutex;
use turnstile_arch_common::println;
use turnstile_mitigation::arm64::{Answers, Cpu, Decision, Firmware, decide};

pub use turnstile_mitigation::arm64::Choice;

use super::psci;
use crate::cpu::{PerCpu, regs};

/// What holds on all CPUs that have been started.
#[derive(Clone, Copy)]
struct Common {
    answers: Answers,
    csv2: u64,
    csv3: u64,
    /// The last that was said, and of which kind of CPU.
    said: (u64, Decision),
}

static COMMON: Mutex<Option<Common>> = Mutex::new(None);

/// Decides what this CPU does, does it, and says so once for each kind of CPU.
pub fn start_cpu(cpu: &PerCpu, choice: Choice) {
    let registers = Cpu {
        midr: regs::MIDR_EL1.read(),
        pfr0: regs::ID_AA64PFR0_EL1.read(),
        pfr1: regs::ID_AA64PFR1_EL1.read(),
        mmfr1: regs::ID_AA64MMFR1_EL1.read(),
        isar2: regs::ID_AA64ISAR2_EL1.read(),
    };
    let decision = decide(&registers, Firmware::ask(psci::call), choice);
    if decision.stop_bypass {
        Firmware::stop_bypass(psci::call);
    }
    cpu.guard.set(decision.exit);
    let mut common = COMMON.lock();
    let said = common.map(|common| common.said);
    *common = Some(join(*common, &registers, decision));
    if decision.is_remarkable() && said != Some((registers.midr, decision)) {
        println!("turnstile: CPU {} (MIDR {:#x}): {decision}", cpu.index, registers.midr);
    }
}

/// Adds a CPU to what holds on all.
fn join(common: Option<Common>, cpu: &Cpu, decision: Decision) -> Common {
    let before =
        common.unwrap_or(Common { answers: Answers::BEST, csv2: 0xf, csv3: 0xf, said: (cpu.midr, decision) });
    Common {
        answers: before.answers.worst(decision.answers()),
        csv2: before.csv2.min(cpu.csv2().into()),
        csv3: before.csv3.min(cpu.csv3().into()),
        said: (cpu.midr, decision),
    }
}

/// What guests are told of the workarounds: what holds on every CPU.
pub fn answers() -> Answers {
    COMMON.lock().map_or(Answers::UNKNOWN, |common| common.answers)
}

/// Limits CSV2 and CSV3 of an ID_AA64PFR0_EL1 to what every CPU has.
pub fn common_pfr0(pfr0: u64) -> u64 {
    let Some(common) = *COMMON.lock() else { return pfr0 };
    let limited = |shift: u32, most: u64| (pfr0 >> shift & 0xf).min(most) << shift;
    pfr0 & !(0xff << 56) | limited(56, common.csv2) | limited(60, common.csv3)
}

#[cfg(test)]
mod tests {
    use turnstile_mitigation::State;

    use super::*;

    const SAFE: Cpu = Cpu { midr: 0x410f_d034, pfr0: 0, pfr1: 0, mmfr1: 0, isar2: 0 };
    const N1: Cpu = Cpu { midr: 0x410f_d0c0, pfr0: 0x11 << 56, pfr1: 2 << 4, mmfr1: 0, isar2: 0 };

    #[test]
    fn what_guests_are_told_holds_on_every_cpu() {
        let decision = |cpu| decide(cpu, Firmware::NONE, Choice::Auto);
        let first = join(None, &N1, decision(&N1));
        assert_eq!((first.csv2, first.csv3, first.answers.third), (1, 1, 0));
        let both = join(Some(first), &SAFE, decision(&SAFE));
        assert_eq!((both.csv2, both.csv3, both.answers.third), (0, 0, 0));
        assert_eq!(both.said.1.history, State::Unaffected);
    }
}
