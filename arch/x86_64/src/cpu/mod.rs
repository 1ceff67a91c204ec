// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The CPU: instructions, registers, and its area.
//!
//! | file | what |
//! |---|---|
//! | [`area`] | what each CPU has for itself |
//! | [`regs`] | control registers, model-specific registers, and their fakes |
//! | [`ports`] | device registers in I/O space |
//! | [`descriptors`] | global descriptor table and task state segment |
//! | [`svm`] | control blocks, intercepts, permission maps |

pub mod area;
pub mod descriptors;
pub mod ports;
pub mod regs;
pub mod svm;

pub use area::{PerCpu, STACK_BLOCK, STACK_HEAD, STACK_TAIL, Slot, this};
pub use turnstile_arch_common::relax;

/// The time stamp counter (APM vol. 2, 13.2.4). On the host a fake that a test sets.
#[inline(always)] // A few instructions.
pub fn ticks() -> u64 {
    #[cfg(target_os = "none")]
    // SAFETY: reads a counter.
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_os = "none"))]
    regs::fakes::read("TSC")
}

/// Returns 64 random bits of the CPU's own generator (APM vol. 3, RDRAND); `None` if it has none now, or is not there.
pub fn random() -> Option<u64> {
    /// In ECX of leaf 1.
    const RDRAND: u32 = 1 << 30;
    let [_, _, features, _] = cpuid(1, 0);
    if features & RDRAND == 0 {
        return None;
    }
    // SAFETY: the CPU has the instruction.
    unsafe { draw() }
}

/// Asks the generator a few times: it may need time for new ones.
///
/// # Safety
/// The CPU has RDRAND.
unsafe fn draw() -> Option<u64> {
    const PATIENCE: u32 = 10;
    let once = || {
        let (bits, good): (u64, u8);
        #[cfg(target_os = "none")]
        // SAFETY: changes two registers and the flags. The instruction is there. The carry says that it has some.
        unsafe {
            core::arch::asm!(
                "rdrand {bits}",
                "setc {good}",
                bits = out(reg) bits, good = out(reg_byte) good,
                options(nomem, nostack)
            );
        }
        #[cfg(not(target_os = "none"))]
        {
            bits = regs::fakes::read("RDRAND");
            good = u8::from(bits != 0);
        }
        (good != 0).then_some(bits)
    };
    (0..PATIENCE).find_map(|_| once())
}

/// Stops this CPU for good.
pub fn halt() -> ! {
    loop {
        #[cfg(target_os = "none")]
        // SAFETY: waits with interrupts off; changes nothing.
        unsafe {
            core::arch::asm!("cli", "hlt", options(nomem, nostack));
        }
        #[cfg(not(target_os = "none"))]
        std::thread::park();
    }
}

/// What CPUID says at a leaf and subleaf (APM vol. 3, appendix E): EAX, EBX, ECX, EDX.
pub fn cpuid(leaf: u32, subleaf: u32) -> [u32; 4] {
    #[cfg(target_arch = "x86_64")]
    {
        let result = core::arch::x86_64::__cpuid_count(leaf, subleaf);
        [result.eax, result.ebx, result.ecx, result.edx]
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = (leaf, subleaf);
        [0; 4]
    }
}

#[cfg(test)]
mod tests {
    use super::regs::fakes;
    use super::*;

    #[test]
    fn a_generator_that_has_nothing_is_asked_a_few_times() {
        // SAFETY: the fakes have the instruction.
        let draw = || unsafe { draw() };
        fakes::set("RDRAND", 5);
        assert_eq!(draw(), Some(5));
        fakes::set("RDRAND", 0);
        assert_eq!(draw(), None);
    }
}
