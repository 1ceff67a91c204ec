// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Registers of a GICv2 (IHI 0048), one value each, with `read` and `write`.
//!
//! Their blocks are mapped at addresses that are the same on every machine and known when the image is built, so an
//! access is one instruction and the address another one. On the host accesses go to the recorder of
//! [`fakes`](super::fakes), as those of system registers do.

/// Where the hypervisor maps the blocks: in the last 2 MiB of the EL2 address space. Each address is an immediate of
/// one instruction.
pub mod window {
    /// Its beginning. What has physical addresses from here on is not used.
    pub const BASE: u64 = 0x7f_ffe0_0000;
    /// The distributor.
    pub const GICD: u64 = 0x7f_fffc_0000;
    /// The virtual CPU interface, the first page. Guests have it at addresses of their own.
    pub const GICV: u64 = 0x7f_fff8_0000;
    /// The CPU interface, two pages.
    pub const GICC: u64 = 0x7f_fffe_0000;
    /// The virtual interface control.
    pub const GICH: u64 = 0x7f_ffff_0000;
}

use window::{GICC, GICD, GICH, GICV};

macro_rules! registers {
    ($($(#[$doc:meta])* $name:ident = $block:ident + $offset:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        #[allow(non_camel_case_types, reason = "the architecture's name")]
        pub struct $name;

        impl $name {
            /// Reads the register.
            #[inline(always)] // Two instructions.
            pub fn read(self) -> u32 {
                #[cfg(target_os = "none")]
                // SAFETY: on a machine with a GICv2 the block is mapped there before any of this runs.
                unsafe {
                    (($block + $offset) as *const u32).read_volatile()
                }
                #[cfg(not(target_os = "none"))]
                {
                    let _ = $block + $offset;
                    super::fakes::read(stringify!($name)) as u32
                }
            }

            /// Writes the register. It reaches neither memory nor the hypervisor's own execution.
            #[inline(always)] // Two instructions.
            pub fn write(self, value: u32) {
                #[cfg(target_os = "none")]
                // SAFETY: as for `read`.
                unsafe {
                    (($block + $offset) as *mut u32).write_volatile(value);
                }
                #[cfg(not(target_os = "none"))]
                super::fakes::write(stringify!($name), value.into());
            }
        }
    )*};
}

registers! {
    /// Distributor control.
    GICD_CTLR = GICD + 0x000;
    /// Interrupt controller type.
    GICD_TYPER = GICD + 0x004;
    /// Active state of private interrupts, of the CPU that accesses it: set.
    GICD_ISACTIVER0 = GICD + 0x300;
    /// SGI generation.
    GICD_SGIR = GICD + 0xf00;

    /// CPU interface control.
    GICC_CTLR = GICC + 0x0000;
    /// Priority mask.
    GICC_PMR = GICC + 0x0004;
    /// Binary point.
    GICC_BPR = GICC + 0x0008;
    /// Acknowledge.
    GICC_IAR = GICC + 0x000c;
    /// End of interrupt (priority drop only: EOImode 1).
    GICC_EOIR = GICC + 0x0010;
    /// Deactivate.
    GICC_DIR = GICC + 0x1000;

    /// Acknowledge, as guests do.
    GICV_IAR = GICV + 0x0c;
    /// End of interrupt, as guests do.
    GICV_EOIR = GICV + 0x10;

    /// Virtual interface control.
    GICH_HCR = GICH + 0x000;
    /// Virtual interface type.
    GICH_VTR = GICH + 0x004;
    /// Virtual machine control.
    GICH_VMCR = GICH + 0x008;
    /// End of interrupt status of list registers 0 to 31.
    GICH_EISR0 = GICH + 0x020;
    /// Empty list registers, 0 to 31.
    GICH_ELRSR0 = GICH + 0x030;
    /// Active priorities.
    GICH_APR = GICH + 0x0f0;
}

/// The list registers, [`turnstile_vgic::MAX_LIST_REGISTERS`] of them.
#[derive(Clone, Copy, Debug)]
#[allow(non_camel_case_types, reason = "the architecture's name")]
pub struct GICH_LR;

/// The first list register.
const GICH_LR0: u64 = GICH + 0x100;

/// What the recorder calls the list registers.
#[cfg(not(target_os = "none"))]
static NAMES: [&str; 16] = [
    "GICH_LR0",
    "GICH_LR1",
    "GICH_LR2",
    "GICH_LR3",
    "GICH_LR4",
    "GICH_LR5",
    "GICH_LR6",
    "GICH_LR7",
    "GICH_LR8",
    "GICH_LR9",
    "GICH_LR10",
    "GICH_LR11",
    "GICH_LR12",
    "GICH_LR13",
    "GICH_LR14",
    "GICH_LR15",
];

impl GICH_LR {
    /// Reads list register `n`, of the first sixteen.
    #[inline(always)] // Two or three instructions.
    pub fn read(self, n: usize) -> u32 {
        let n = n & 15;
        #[cfg(target_os = "none")]
        // SAFETY: as for the other registers; the page has room for 64 list registers.
        unsafe {
            (GICH_LR0 as *const u32).add(n).read_volatile()
        }
        #[cfg(not(target_os = "none"))]
        {
            let _ = GICH_LR0;
            super::fakes::read(NAMES[n]) as u32
        }
    }

    /// Writes list register `n`, of the first sixteen.
    #[inline(always)] // Two or three instructions.
    pub fn write(self, n: usize, value: u32) {
        let n = n & 15;
        #[cfg(target_os = "none")]
        // SAFETY: as for the other registers; the page has room for 64 list registers.
        unsafe {
            (GICH_LR0 as *mut u32).add(n).write_volatile(value);
        }
        #[cfg(not(target_os = "none"))]
        super::fakes::write(NAMES[n], value.into());
    }
}
