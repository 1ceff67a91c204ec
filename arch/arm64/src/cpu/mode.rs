// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The two modes of the hypervisor: with the Virtualization Host Extensions (VHE, Armv8.1) and without.
//!
//! In both it runs wholly in EL2. VHE gives EL2 the translation regime and the register formats of EL1, and the guest's
//! EL1 registers other names; that is all that differs, and no light exit has to do with it. What has to (the set-up of
//! a CPU, the reset of a vCPU, exceptions raised in the guest) is generic over a zero-sized type, [`Vhe`] or [`Nvhe`],
//! and picks its instance where it begins ([`in_mode`]).

use core::sync::atomic::{AtomicBool, Ordering};

/// A mode.
pub trait Mode {
    /// Whether HCR_EL2.E2H is set.
    const VHE: bool;
    /// What the mode adds to HCR_EL2.
    const HCR: u64;
    /// CPTR_EL2: FP, SVE, SME, trace and activity monitors trapped.
    const CPTR: u64;
    /// The bits of CPTR_EL2 that are otherwise when FP and SIMD are open.
    const CPTR_FP: u64;
    /// The bits of CPTR_EL2 that are otherwise when SVE is open.
    const CPTR_SVE: u64;
    /// CNTHCTL_EL2: the guest's EL1 and EL0 use the physical counter and timer directly.
    const CNTHCTL: u64;
}

/// With VHE: E2H=1. TGE stays 0, so nothing is toggled between guest and hypervisor.
#[derive(Clone, Copy, Debug)]
pub struct Vhe;

/// Without VHE: Armv8.0, or VHE refused by the command line.
#[derive(Clone, Copy, Debug)]
pub struct Nvhe;

impl Mode for Vhe {
    const VHE: bool = true;
    const HCR: u64 = 1 << 34; // E2H
    const CPTR: u64 = 1 << 28 // TTA
        | 1 << 30; // TAM
    // 1: open to EL2 and, while TGE is 0, to EL1 and EL0. While it is 1, a service is at EL0, for which both trap.
    const CPTR_FP: u64 = 1 << 20; // FPEN
    const CPTR_SVE: u64 = 1 << 16; // ZEN
    const CNTHCTL: u64 = 1 << 10 | 1 << 11; // EL1PCTEN, EL1PTEN
}

impl Mode for Nvhe {
    const VHE: bool = false;
    const HCR: u64 = 0;
    const CPTR: u64 = 0x33ff // RES1; among them TZ (8) and TSM (12), which trap where there is SVE and SME
        | 1 << 10 // TFP
        | 1 << 20 // TTA
        | 1 << 30; // TAM
    const CPTR_FP: u64 = 1 << 10; // TFP
    const CPTR_SVE: u64 = 1 << 8; // TZ
    const CNTHCTL: u64 = 1 << 0 | 1 << 1; // EL1PCTEN, EL1PCEN
}

/// Whether the mode is [`Nvhe`]. `boot.S` reads it with the MMU off: it is written once, before the MMU is turned on,
/// so memory itself holds it.
#[cfg_attr(target_os = "none", unsafe(no_mangle))]
static TURNSTILE_NVHE: AtomicBool = AtomicBool::new(false);

/// Returns whether the mode of this machine is [`Vhe`].
#[inline] // One load.
pub fn is_vhe() -> bool {
    !TURNSTILE_NVHE.load(Ordering::Relaxed)
}

/// Calls a function that is generic over the mode, in the mode of this machine.
macro_rules! in_mode {
    ($function:ident($($argument:expr),*)) => {
        match $crate::cpu::mode::is_vhe() {
            true => $function::<$crate::cpu::mode::Vhe>($($argument),*),
            false => $function::<$crate::cpu::mode::Nvhe>($($argument),*),
        }
    };
}
pub(crate) use in_mode;

/// What the hypervisor's command line says of the mode: `mode=vhe` or `mode=nvhe`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Nothing: VHE if the CPU has it.
    Any,
    /// VHE.
    Vhe,
    /// Without VHE, for comparison.
    Nvhe,
}

impl Wanted {
    /// Reads one word of the command line; `None` if it says nothing of the mode.
    pub fn from_word(word: &str) -> Option<Self> {
        match word {
            "mode=vhe" => Some(Self::Vhe),
            "mode=nvhe" => Some(Self::Nvhe),
            _ => None,
        }
    }

    /// Reads the command line; the last word counts.
    pub fn from_line(line: &str) -> Self {
        line.split_ascii_whitespace().filter_map(Self::from_word).next_back().unwrap_or(Self::Any)
    }
}

/// What a CPU allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// It has VHE: HCR_EL2.E2H may be 1.
    pub vhe: bool,
    /// It has the regime without VHE: HCR_EL2.E2H may be 0.
    pub nvhe: bool,
}

impl Capabilities {
    /// Takes them from ID_AA64MMFR1_EL1 (VH) and ID_AA64MMFR4_EL1 (E2H0: negative where E2H is RES1).
    pub fn new(mmfr1: u64, mmfr4: u64) -> Self {
        Self { vhe: mmfr1 >> 8 & 0xf != 0, nvhe: mmfr4 >> 24 & 8 == 0 }
    }
}

/// Why the wanted mode cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The CPU has no VHE.
    NoVhe,
    /// The CPU cannot do without VHE.
    OnlyVhe,
    /// The image is one for ablation, whose naive paths know the registers' names of VHE only.
    AblationNeedsVhe,
}

/// Chooses the mode; true is VHE.
///
/// # Errors
/// When it cannot be had on this CPU, or by this image.
pub fn choose(wanted: Wanted, cpu: Capabilities) -> Result<bool, Refusal> {
    let vhe = match wanted {
        Wanted::Any => cpu.vhe,
        Wanted::Vhe => true,
        Wanted::Nvhe => false,
    };
    match vhe {
        true if !cpu.vhe => Err(Refusal::NoVhe),
        false if !cpu.nvhe => Err(Refusal::OnlyVhe),
        false if cfg!(feature = "ablation") => Err(Refusal::AblationNeedsVhe),
        vhe => Ok(vhe),
    }
}

/// Makes VHE, or its absence, the mode.
///
/// # Safety
/// Once, on the boot CPU with its MMU off, before the mode is looked at.
#[cfg(target_os = "none")]
pub unsafe fn set(vhe: bool) {
    TURNSTILE_NVHE.store(!vhe, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: Capabilities = Capabilities { vhe: true, nvhe: true };
    const OLD: Capabilities = Capabilities { vhe: false, nvhe: true };
    const NEW: Capabilities = Capabilities { vhe: true, nvhe: false };

    #[test]
    fn vhe_is_used_where_it_is_unless_refused() {
        assert_eq!(choose(Wanted::Any, BOTH), Ok(true));
        assert_eq!(choose(Wanted::Any, NEW), Ok(true));
        assert_eq!(choose(Wanted::Vhe, OLD), Err(Refusal::NoVhe));
        assert_eq!(choose(Wanted::Nvhe, NEW), Err(Refusal::OnlyVhe));
    }

    #[test]
    #[cfg(not(feature = "ablation"))]
    fn every_other_cpu_does_without() {
        assert_eq!(choose(Wanted::Any, OLD), Ok(false));
        assert_eq!(choose(Wanted::Nvhe, OLD), Ok(false));
        assert_eq!(choose(Wanted::Nvhe, BOTH), Ok(false));
    }

    #[test]
    #[cfg(feature = "ablation")]
    fn an_image_for_ablation_needs_vhe() {
        assert_eq!(choose(Wanted::Any, OLD), Err(Refusal::AblationNeedsVhe));
        assert_eq!(choose(Wanted::Nvhe, BOTH), Err(Refusal::AblationNeedsVhe));
    }

    #[test]
    fn capabilities_are_read_from_the_id_registers() {
        assert_eq!(Capabilities::new(0, 0), OLD);
        assert_eq!(Capabilities::new(1 << 8, 0), BOTH);
        // E2H0: 0b1111 and 0b1110 say that E2H cannot be 0.
        assert_eq!(Capabilities::new(1 << 8, 0xf << 24), NEW);
        assert_eq!(Capabilities::new(1 << 8, 0xe << 24), NEW);
    }

    #[test]
    fn the_last_word_on_the_mode_counts() {
        assert_eq!(Wanted::from_line(""), Wanted::Any);
        assert_eq!(Wanted::from_line("link=framed mode=nvhe"), Wanted::Nvhe);
        assert_eq!(Wanted::from_line("mode=nvhe mode=vhe mode=none"), Wanted::Vhe);
    }
}
