// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keeping guests from steering the hypervisor's speculation, and each other's: each CPU gets what it needs, at boot.
//!
//! What that is, `turnstile_mitigation` decides. Some of it is written to registers once. What is to be done on each exit
//! and entry is in copies of the run loop (`vectors.S`), one for each combination; a vCPU uses the one that does what the
//! machine's CPUs need, and the plain one knows nothing of the others.

use turnstile_mitigation::x86_64::{Cpu, Decision, Offer, Once, StopBypass, Together, decide, spec_ctrl};

pub use turnstile_mitigation::x86_64::{Choice, Exit};
use turnstile_x86policy::CpuidTable;

use crate::cpu;
use crate::cpu::regs::{BP_CFG, DE_CFG, EFER, LS_CFG, SPEC_CTRL, VIRT_SPEC_CTRL, efer};
use turnstile_arch_common::println;

/// DE_CFG: LFENCE waits for all before it.
const SERIALIZE: u64 = 1 << 1;
/// BP_CFG: speculation of returns is reduced.
const REDUCE: u64 = 1 << 4;

/// All CPUs that have been started.
#[derive(Clone, Copy)]
struct Common {
    together: Together,
    /// The last that was said, and of which kind of CPU.
    said: Option<(Cpu, Decision)>,
}

const NOBODY: Common = Common { together: Together::NOBODY, said: None };

#[cfg(target_os = "none")]
fn with_common<R>(f: impl FnOnce(&mut Common) -> R) -> R {
    static COMMON: spin::Mutex<Common> = spin::Mutex::new(NOBODY);
    f(&mut COMMON.lock())
}

/// Each test has CPUs of its own.
#[cfg(not(target_os = "none"))]
fn with_common<R>(f: impl FnOnce(&mut Common) -> R) -> R {
    std::thread_local!(static COMMON: core::cell::RefCell<Common> = const { core::cell::RefCell::new(NOBODY) });
    COMMON.with_borrow_mut(f)
}

/// Decides what this CPU does, does it, and says so once for each kind of CPU.
pub fn start_cpu(choice: Choice) {
    let registers = Cpu::read(cpu::cpuid);
    let decision = decide(&registers, choice);
    start(&registers, &decision);
}

/// Does what is decided for this CPU.
fn start(registers: &Cpu, decision: &Decision) {
    write_once(registers, &decision.once);
    let said = with_common(|common| {
        let before = common.said.replace((*registers, *decision));
        common.together = common.together.and(registers, decision);
        before
    });
    if decision.is_remarkable() && said != Some((*registers, *decision)) {
        let Cpu { family, model, .. } = registers;
        println!("turnstile: CPU {} (family {family:#x}, model {model:#x}): {decision}", cpu::this().index);
        if !with_common(|common| common.together.is_enough()) {
            println!(
                "turnstile: not all CPUs have IBPB, so none uses it; open to guests: branch targets, returns"
            );
        }
    }
}

fn write_once(registers: &Cpu, once: &Once) {
    // SAFETY: the decision holds that the CPU has the registers and the bits. They make speculation more careful, and
    // change nothing that an instruction computes. VMRUN and #VMEXIT keep the hypervisor's EFER and the guest's apart.
    unsafe {
        if once.serialize {
            DE_CFG.write(DE_CFG.read() | SERIALIZE);
        }
        if once.reduce {
            BP_CFG.write(BP_CFG.read() | REDUCE);
        }
        if once.auto_ibrs {
            EFER.write(EFER.read() | efer::AIBRSE);
        }
        if registers.has_spec_ctrl() {
            SPEC_CTRL.write(once.spec_ctrl);
        }
        match once.stop_bypass {
            Some(StopBypass::LoadStore(bit)) => LS_CFG.write(LS_CFG.read() | bit),
            Some(StopBypass::Virtual) => VIRT_SPEC_CTRL.write(spec_ctrl::SSBD),
            // In the value above.
            Some(StopBypass::SpecCtrl) | None => {}
        }
    }
}

/// What each exit and entry does on every CPU.
pub fn exit() -> Exit {
    with_common(|common| common.together.exit())
}

/// What guests are told: what holds on every CPU.
pub fn offer() -> Offer {
    with_common(|common| match common.said {
        Some(_) => common.together.offer,
        None => Offer::default(),
    })
}

/// The hypervisor's SPEC_CTRL, which adds to the guest's.
pub fn host_spec_ctrl() -> u64 {
    with_common(|common| common.said.map_or(0, |_| common.together.spec_ctrl))
}

/// Says whether IBPB comes between vCPUs.
pub fn between() -> bool {
    with_common(|common| common.together.between())
}

/// What a vCPU has been told, by what its CPUID answers.
pub fn told(cpuid: &CpuidTable) -> Offer {
    let [_, ebx, ..] = cpuid.get(0x8000_0008, 0).registers;
    let [eax, _, ecx, _] = cpuid.get(0x8000_0021, 0).registers;
    Offer { extended_8_ebx: ebx, extended_21_eax: eax, extended_21_ecx: ecx }
}

/// Makes this thread's only CPU one with these registers, for a test.
#[cfg(test)]
pub(crate) fn pretend(registers: &Cpu, choice: Choice) {
    with_common(|common| *common = NOBODY);
    start(registers, &decide(registers, choice));
}

#[cfg(test)]
pub(crate) mod tests;
