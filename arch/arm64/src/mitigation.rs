// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keeping guests from steering the hypervisor's speculation: each CPU gets what it needs, at boot.
//!
//! What that is, `turnstile_mitigation` decides. A CPU that needs something on each exit takes exceptions by a guarded
//! copy of its vector table (`guards.S`); one that needs nothing uses the table that knows nothing of it.

use core::sync::atomic::{AtomicU32, Ordering};

use spin::Mutex;
use turnstile_mitigation::{Answers, Cpu, Decision, Exit, Firmware, decide};

pub use turnstile_mitigation::Choice;

use crate::cpu::PerCpu;
use crate::{println, psci, regs};

/// The guarded tables of a table, in the order in which they follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Kind {
    None,
    Clear,
    Loop,
    Call,
    LoopCall,
}

impl Kind {
    const fn of(exit: Exit) -> Self {
        match exit {
            Exit::Nothing => Self::None,
            Exit::Clear => Self::Clear,
            Exit::Loop(_) => Self::Loop,
            Exit::Firmware(_) => Self::Call,
            Exit::LoopAndFirmware(..) => Self::LoopCall,
        }
    }
}

/// What a CPU does first on each exit. `guards.S` knows the first two fields.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Guard {
    call: AtomicU32,
    turns: AtomicU32,
    kind: AtomicU32,
}

const _: () = assert!(core::mem::offset_of!(PerCpu, guard) == 16);
const _: () = assert!(core::mem::offset_of!(Guard, turns) == 4);

/// Bytes of a vector table.
#[cfg(any(target_os = "none", test))]
const TABLE: u64 = 0x800;

impl Guard {
    /// Nothing.
    pub const fn new() -> Self {
        Self { call: AtomicU32::new(0), turns: AtomicU32::new(0), kind: AtomicU32::new(0) }
    }

    // Relaxed: written by the CPU itself before it enters a guest, and read by it alone.
    fn set(&self, exit: Exit) {
        self.call.store(exit.call().unwrap_or(0), Ordering::Relaxed);
        self.turns.store(exit.turns().unwrap_or(0).into(), Ordering::Relaxed);
        self.kind.store(Kind::of(exit) as u32, Ordering::Relaxed);
    }

    /// The address of what this CPU uses in the place of the table at `plain`: itself, or one of its guarded copies,
    /// which begin where `tables` says.
    ///
    /// # Panics
    /// If it is to be guarded and has no copies: an image in which something was forgotten.
    #[cfg(any(target_os = "none", test))]
    fn table(&self, plain: u64, tables: &[(u64, u64)]) -> u64 {
        let kind = self.kind.load(Ordering::Relaxed);
        if kind == 0 {
            return plain;
        }
        let copies = tables.iter().find(|(table, _)| *table == plain).map(|(_, copies)| *copies);
        copies.expect("every vector table has guarded copies") + u64::from(kind - 1) * TABLE
    }
}

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

/// Each vector table and where its guarded copies begin.
#[cfg(target_os = "none")]
fn tables() -> [(u64, u64); 2] {
    unsafe extern "C" {
        static vectors: u8;
        static vectors_guarded: u8;
        static vectors_timed: u8;
        static vectors_timed_guarded: u8;
    }
    [
        (&raw const vectors as u64, &raw const vectors_guarded as u64),
        (&raw const vectors_timed as u64, &raw const vectors_timed_guarded as u64),
    ]
}

/// Makes this CPU take exceptions by the table at `plain`, guarded as it needs.
///
/// # Safety
/// A complete vector table, which handles what may happen from now on.
#[cfg(target_os = "none")]
pub unsafe fn use_vectors(cpu: &PerCpu, plain: u64) {
    // SAFETY: by the contract; a guarded copy does the same for the guest, and for EL2 itself.
    unsafe { regs::VBAR_EL2.write(cpu.guard.table(plain, &tables())) };
    crate::cpu::isb();
}

#[cfg(test)]
mod tests {
    use turnstile_mitigation::State;

    use super::*;

    const SAFE: Cpu = Cpu { midr: 0x410f_d034, pfr0: 0, pfr1: 0, mmfr1: 0, isar2: 0 };
    const N1: Cpu = Cpu { midr: 0x410f_d0c0, pfr0: 0x11 << 56, pfr1: 2 << 4, mmfr1: 0, isar2: 0 };

    #[test]
    fn each_guard_has_its_table() {
        let guard = Guard::new();
        let table = |exit| {
            guard.set(exit);
            (
                guard.table(0x1_0000, &[(0x8000, 0x9000), (0x1_0000, 0x2_0000)]),
                guard.turns.load(Ordering::Relaxed),
                guard.call.load(Ordering::Relaxed),
            )
        };
        assert_eq!(table(Exit::Clear), (0x2_0000, 0, 0));
        assert_eq!(table(Exit::Loop(24)), (0x2_0800, 24, 0));
        assert_eq!(table(Exit::Firmware(0x8000_3fff)), (0x2_1000, 0, 0x8000_3fff));
        assert_eq!(table(Exit::LoopAndFirmware(8, 0x8000_8000)), (0x2_1800, 8, 0x8000_8000));
        assert_eq!(table(Exit::Nothing), (0x1_0000, 0, 0));
    }

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
