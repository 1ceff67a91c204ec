// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which model-specific registers a guest has (AMD APM vol. 2, appendix A; BIOS and Kernel Developer's Guides for C001_xxxx).
//!
//! | policy | the guest's access |
//! |---|---|
//! | [`Policy::Own`] | does not exit: the CPU has the guest's value while the vCPU is resident |
//! | [`Policy::Emulated`] | is carried out by what [`Emulated`] names |
//! | [`Policy::Kept`] | reads what was written, which has no effect: [`Bank`] keeps it |
//! | [`Policy::Constant`] | reads the same always; a write is ignored, or #GP |
//! | [`Policy::Absent`] | is #GP(0) |

/// What becomes of an access to an MSR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The CPU's own register, switched with the vCPU.
    Own,
    /// A register with an effect, which the hypervisor carries out.
    Emulated(Emulated),
    /// A register without effect that keeps its value: the place in a [`Bank`].
    Kept(Place),
    /// A register that never changes.
    Constant {
        /// Its value.
        value: u64,
        /// Whether a write is ignored; otherwise it is #GP.
        ignores_writes: bool,
    },
    /// No register.
    Absent,
}

/// Registers with an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emulated {
    /// The time-stamp counter.
    Tsc,
    /// APIC_BASE.
    ApicBase,
    /// The deadline of the APIC's timer.
    TscDeadline,
    /// A register of the local APIC in x2APIC mode, 0x800 to 0x8ff.
    X2Apic,
    /// The memory types of page table entries.
    Pat,
    /// Extended features: EFER.
    Efer,
    /// Prediction command: a barrier for indirect branches.
    PredictionCommand,
    /// Speculation control, where VMRUN does not switch it; else it is the CPU's own.
    SpeculationControl,
    /// A register of KVM's paravirtual interface; which of them there are depends on what the VM is offered.
    Kvm,
}

/// The place of a kept register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(u8);

/// The CPU's own registers that a guest has.
pub const OWN: [u32; 11] = [
    0x174,       // SYSENTER_CS
    0x175,       // SYSENTER_ESP
    0x176,       // SYSENTER_EIP
    0xc000_0081, // STAR
    0xc000_0082, // LSTAR
    0xc000_0083, // CSTAR
    0xc000_0084, // SFMASK
    0xc000_0100, // FS.base
    0xc000_0101, // GS.base
    0xc000_0102, // KernelGSbase
    0xc000_0103, // TSC_AUX
];

/// Speculation control: the CPU's own where VMRUN switches it, and the guest is offered it.
pub const SPEC_CTRL: u32 = 0x48;

/// Variable ranges that the MTRRs have.
const VARIABLE_RANGES: u32 = 8;
/// MTRRcap: the variable ranges, the fixed ones, write combining.
const MTRR_CAP: u64 = VARIABLE_RANGES as u64 | 1 << 8 | 1 << 10;
/// The microcode's revision: high enough that no kernel looks for another.
const PATCH_LEVEL: u64 = 0x0100_0065;
/// HWCR: the TSC counts at the rate of P-state 0 (bit 24).
const HWCR: u64 = 1 << 24;
/// DE_CFG: LFENCE waits for all before it (bit 1).
const DE_CFG: u64 = 1 << 1;

const fn ignoring(value: u64) -> Policy {
    Policy::Constant { value, ignores_writes: true }
}

const fn read_only(value: u64) -> Policy {
    Policy::Constant { value, ignores_writes: false }
}

const fn kept(place: u32) -> Policy {
    Policy::Kept(Place(place as u8))
}

/// Returns what becomes of accesses to an MSR.
pub const fn policy(number: u32) -> Policy {
    match number {
        0x174..=0x176 | 0xc000_0081..=0xc000_0084 | 0xc000_0100..=0xc000_0103 => Policy::Own,
        0x10 => Policy::Emulated(Emulated::Tsc),
        0x1b => Policy::Emulated(Emulated::ApicBase),
        SPEC_CTRL => Policy::Emulated(Emulated::SpeculationControl),
        0x49 => Policy::Emulated(Emulated::PredictionCommand),
        0x277 => Policy::Emulated(Emulated::Pat),
        0x6e0 => Policy::Emulated(Emulated::TscDeadline),
        0x800..=0x8ff => Policy::Emulated(Emulated::X2Apic),
        0xc000_0080 => Policy::Emulated(Emulated::Efer),
        0x11 | 0x12 | 0x4b56_4d00..=0x4b56_4dff => Policy::Emulated(Emulated::Kvm),
        // Machine checks, in the form of the Pentium: no address, no type.
        0x0 | 0x1 => ignoring(0),
        0x8b => ignoring(PATCH_LEVEL),
        0xfe => read_only(MTRR_CAP),
        // Machine checks: no banks.
        0x179 => read_only(0),
        0x17a => kept(PLACE_MCG_STATUS),
        // DEBUGCTL: no branch records, no stepping by branches.
        0x1d9 => ignoring(0),
        0x200..=0x20f => kept(PLACE_VARIABLE + number - 0x200),
        0x250 => kept(PLACE_FIXED),
        0x258 | 0x259 => kept(PLACE_FIXED + 1 + number - 0x258),
        0x268..=0x26f => kept(PLACE_FIXED + 3 + number - 0x268),
        0x2ff => kept(PLACE_DEFAULT),
        // Four counters and what each counts: every AMD processor has them, whatever CPUID says. They count nothing.
        0xc001_0000..=0xc001_0007 => ignoring(0),
        0xc001_0015 => ignoring(HWCR),
        0xc001_1029 => ignoring(DE_CFG),
        // SYSCFG, the tops of memory, NB_CFG, the microcode's loader, interrupt pending, configuration space, TSEG, and the
        // configuration of units of the core (LS, IC, DC, BU): kernels for AMD look at them and set bits for errata.
        0xc001_0010
        | 0xc001_001a
        | 0xc001_001d
        | 0xc001_001f
        | 0xc001_0020
        | 0xc001_0055
        | 0xc001_0058
        | 0xc001_0112
        | 0xc001_0113
        | 0xc001_100d
        | 0xc001_1020..=0xc001_1028
        | 0xc001_102a..=0xc001_102d => ignoring(0),
        _ => Policy::Absent,
    }
}

const PLACE_MCG_STATUS: u32 = 0;
const PLACE_DEFAULT: u32 = 1;
const PLACE_VARIABLE: u32 = 2;
const PLACE_FIXED: u32 = PLACE_VARIABLE + 2 * VARIABLE_RANGES;
const PLACES: usize = (PLACE_FIXED + 11) as usize;

/// MTRRdefType: MTRRs on, fixed ranges on, and everything is write-back, as firmware leaves them.
const DEFAULT_RESET: u64 = 1 << 11 | 1 << 10 | WRITE_BACK;
const DEFAULT_WRITABLE: u64 = 1 << 11 | 1 << 10 | 0xff;
const WRITE_BACK: u64 = 6;
/// Bits of a physical address that the MTRRs of a guest may have.
const ADDRESS: u64 = (1 << 52) - 1;
/// MCG_STATUS: restart address valid, error address valid, in progress.
const MCG_STATUS_WRITABLE: u64 = 7;

/// The registers of a vCPU that only keep what is written to them.
#[derive(Clone, Debug)]
pub struct Bank([u64; PLACES]);

impl Default for Bank {
    fn default() -> Self {
        Self::new()
    }
}

impl Bank {
    /// Makes the bank as it is after a reset.
    #[must_use]
    pub const fn new() -> Self {
        let mut values = [0; PLACES];
        values[PLACE_DEFAULT as usize] = DEFAULT_RESET;
        let mut at = PLACE_FIXED as usize;
        while at < PLACES {
            values[at] = WRITE_BACK * 0x0101_0101_0101_0101;
            at += 1;
        }
        Self(values)
    }

    /// Reads a register.
    #[must_use]
    pub fn read(&self, Place(place): Place) -> u64 {
        self.0.get(usize::from(place)).copied().unwrap_or(0)
    }

    /// Writes a register; false, and nothing done, if the value has bits that must be zero, or names a memory type that
    /// there is not: #GP (APM vol. 2, 7.7).
    #[must_use]
    pub fn write(&mut self, Place(place): Place, value: u64) -> bool {
        let valid = match u32::from(place) {
            PLACE_MCG_STATUS => value & !MCG_STATUS_WRITABLE == 0,
            PLACE_DEFAULT => value & !DEFAULT_WRITABLE == 0 && is_type(value as u8),
            place if place >= PLACE_FIXED => value.to_le_bytes().iter().all(|kind| is_type(*kind)),
            place if (place - PLACE_VARIABLE).is_multiple_of(2) => {
                value & !(ADDRESS & !0xf00) == 0 && is_type(value as u8)
            }
            _ => value & !(ADDRESS & !0x7ff) == 0,
        };
        if valid && let Some(register) = self.0.get_mut(usize::from(place)) {
            *register = value;
        }
        valid
    }
}

/// Memory types: uncacheable, write-combining, write-through, write-protect, write-back.
fn is_type(kind: u8) -> bool {
    matches!(kind, 0 | 1 | 4 | 5 | 6)
}
