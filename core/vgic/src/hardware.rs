// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The virtual CPU interface as the model sees it.
//!
//! `arch` implements [`VirtualInterface`] over `ICH_*_EL2` (Arm IHI 0069, chapter 12.4) and over GICH; tests implement it in memory.
//! Every call is one slow access of the hardware, so the model keeps its own copy of what it wrote, and calls only if the answer may
//! have changed.

/// Is the state of a list register: `ICH_LR<n>_EL2.State`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum LrState {
    /// Holds no interrupt (0b00).
    #[default]
    Invalid = 0,
    /// Holds an interrupt that the guest has not acknowledged (0b01).
    Pending = 1,
    /// Holds an interrupt between its acknowledge and its deactivation (0b10).
    Active = 2,
    /// Holds an active interrupt that is to become pending at its deactivation (0b11).
    PendingActive = 3,
}

impl LrState {
    /// Composes the state from its two bits.
    #[inline] // Two bits; a call would cost more.
    pub const fn new(pending: bool, active: bool) -> Self {
        match (pending, active) {
            (false, false) => Self::Invalid,
            (true, false) => Self::Pending,
            (false, true) => Self::Active,
            (true, true) => Self::PendingActive,
        }
    }

    /// Takes the state from the two lowest bits, laid out as in a list register.
    #[inline(always)] // Nothing: the values are the bits.
    pub const fn from_bits(bits: u64) -> Self {
        match bits & 3 {
            0 => Self::Invalid,
            1 => Self::Pending,
            2 => Self::Active,
            _ => Self::PendingActive,
        }
    }

    /// Returns whether the pending bit is set.
    #[inline] // One bit.
    pub const fn pending(self) -> bool {
        self as u8 & 1 != 0
    }

    /// Returns whether the active bit is set.
    #[inline] // One bit.
    pub const fn active(self) -> bool {
        self as u8 & 2 != 0
    }
}

/// Says what stands behind the interrupt of a list register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Nothing physical (`HW` = 0).
    Software {
        /// Asks for a maintenance interrupt when the guest deactivates the interrupt (`EOI`, bit 41).
        eoi_maintenance: bool,
    },
    /// A physical interrupt that is active; the guest's deactivation deactivates it too (`HW` = 1).
    Hardware {
        /// The physical INTID (`pINTID`).
        pintid: u32,
    },
}

/// Is the content of one list register: `ICH_LR<n>_EL2` or `GICH_LR<n>`.
// In this order, state and source of a new SGI are constants side by side: one store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ListRegister {
    /// The virtual INTID (`vINTID`).
    pub intid: u32,
    /// What stands behind it.
    pub backing: Backing,
    /// The priority, in the upper bits as in `GICD_IPRIORITYR`; unimplemented bits are zero.
    pub priority: u8,
    /// Whether the interrupt is in Group 1 (`Group`).
    pub group1: bool,
    /// The state. Never [`LrState::PendingActive`] with [`Backing::Hardware`], which the
    /// architecture forbids.
    pub state: LrState,
    /// The vCPU that sent the SGI: `CPUID` in `GICH_LR<n>` (Arm IHI 0048, section 5.3), and bits 12:10 of
    /// `vINTID` for a GICv2 guest on a GICv3 (Arm IHI 0069, section 12.4). Zero for all else.
    pub source: u8,
}

/// Adds the sender to an SGI's list register that [`VirtualInterface::encode`] composed: it is in bits 12:10 in all
/// formats.
#[inline(always)] // One instruction.
pub(crate) const fn with_source(encoded: u64, source: u8) -> u64 {
    encoded | (source as u64 & 7) << 10
}

/// Says which conditions raise the maintenance interrupt, and whether DIR traps: `ICH_HCR_EL2`.
///
/// There is no underflow condition (`UIE`): the planner never needs it, and with one list register
/// it is true for ever, so that the guest would make no progress (see the `plan` module).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Maintenance {
    /// `LRENPIE`: the guest deactivated an interrupt that is in no list register.
    pub lr_entry_not_present: bool,
    /// `NPIE`: no list register is in the pending state.
    pub no_pending: bool,
    /// `VGrp0EIE`: the guest's CPU interface has Group 0 enabled.
    pub group0_enabled: bool,
    /// `VGrp0DIE`: the guest's CPU interface has Group 0 disabled.
    pub group0_disabled: bool,
    /// `VGrp1EIE`: the guest's CPU interface has Group 1 enabled.
    pub group1_enabled: bool,
    /// `VGrp1DIE`: the guest's CPU interface has Group 1 disabled.
    pub group1_disabled: bool,
    /// `TDIR`: guest writes to `ICC_DIR_EL1` trap. On CPUs without it (`ICH_VTR_EL2.TDS` = 0) the
    /// implementation has to trap by other means (`TC`). Handle the trap with
    /// [`VcpuGic::dir`](crate::VcpuGic::dir). Never set for a [`Model::Gicv2`](crate::Model::Gicv2), whose
    /// guest's DIR traps always.
    pub trap_dir: bool,
}

impl Maintenance {
    /// Has no condition and no trap armed: the state of the interface at boot.
    pub const NONE: Self = Self {
        lr_entry_not_present: false,
        no_pending: false,
        group0_enabled: false,
        group0_disabled: false,
        group1_enabled: false,
        group1_disabled: false,
        trap_dir: false,
    };
}

/// Says which groups the guest's CPU interface has enabled: `ICH_VMCR_EL2.VENG0` and `VENG1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupEnables {
    /// `VENG0`.
    pub group0: bool,
    /// `VENG1`.
    pub group1: bool,
}

/// Is the virtual CPU interface of the physical CPU that a vCPU is resident on.
///
/// Each method is one access to a slow register; the model counts on nothing being cached below it.
/// List registers are empty and no condition is armed before a
/// [`VcpuGic::load`](crate::VcpuGic::load). `n` is always below the count given to
/// [`VcpuGic::new`](crate::VcpuGic::new).
pub trait VirtualInterface {
    /// Reads the state of list register `n`.
    fn read_lr(&mut self, n: usize) -> LrState;
    /// Writes list register `n`.
    fn write_lr(&mut self, n: usize, lr: ListRegister);
    /// Composes a list register as the hardware has it.
    fn encode(lr: ListRegister) -> u64
    where
        Self: Sized;
    /// Writes list register `n`, which `encoded` is as [`Self::encode`] composes it, if it is invalid. Returns whether it was.
    #[inline(always)] // Hot: the light exits of SGIs.
    fn write_if_invalid(&mut self, n: usize, lr: ListRegister, encoded: u64) -> bool {
        let _ = encoded;
        let invalid = self.read_lr(n) == LrState::Invalid;
        if invalid {
            self.write_lr(n, lr);
        }
        invalid
    }
    /// Writes list register `n`, which `encoded` is as [`Self::encode`] composes it.
    #[inline(always)] // Hot: the light exit of a timer's interrupt.
    fn write_encoded(&mut self, n: usize, lr: ListRegister, encoded: u64) {
        let _ = encoded;
        self.write_lr(n, lr);
    }
    /// Writes zero to list register `n`, so that it is invalid and asks for no maintenance.
    fn clear_lr(&mut self, n: usize);
    /// Reads `ICH_ELRSR_EL2`: bit n is set when list register n is invalid and has no maintenance
    /// outstanding.
    fn empty_lrs(&mut self) -> u16;
    /// Reads `ICH_EISR_EL2`: bit n is set when list register n is invalid, is not hardware-backed,
    /// and was written with `eoi_maintenance`.
    fn eoi_lrs(&mut self) -> u16;
    /// Reads `ICH_HCR_EL2.EOIcount` and sets it to zero: the number of deactivations since the last
    /// call of interrupts that were in no list register.
    fn take_eoi_count(&mut self) -> u8;
    /// Writes the conditions to `ICH_HCR_EL2`, and zero to `EOIcount`: what was counted before the
    /// condition was armed means nothing, and after that the model takes the count first.
    fn set_maintenance(&mut self, maintenance: Maintenance);
    /// Reads the guest's group enables.
    fn group_enables(&mut self) -> GroupEnables;
    /// Says whether the line of a level-sensitive physical interrupt is high that was given to
    /// [`VcpuGic::inject_ppi_hw`](crate::VcpuGic::inject_ppi_hw): whether its timer still has its condition.
    fn is_asserted(&mut self, pintid: u32) -> bool;
    /// Deactivates a physical interrupt (`ICC_DIR_EL1`) whose virtual twin ended without the guest's
    /// deactivating it through a hardware-backed list register.
    fn deactivate_physical(&mut self, pintid: u32);
}
