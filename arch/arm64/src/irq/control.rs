// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The fields that GICH_HCR has where ICH_HCR_EL2 has them, and GICH_VMCR where ICH_VMCR_EL2 (IHI 0048, 5.3; IHI 0069, 12.4).

use turnstile_vgic::{GroupEnables, Maintenance};

/// HCR: the virtual CPU interface is on.
pub(super) const EN: u32 = 1 << 0;
const LRENPIE: u32 = 1 << 2;
const NPIE: u32 = 1 << 3;
const VGRP0EIE: u32 = 1 << 4;
const VGRP0DIE: u32 = 1 << 5;
const VGRP1EIE: u32 = 1 << 6;
const VGRP1DIE: u32 = 1 << 7;
const EOI_COUNT_SHIFT: u32 = 27;
const EOI_COUNT: u32 = 0x1f << EOI_COUNT_SHIFT;
const VMCR_VENG0: u32 = 1 << 0;
const VMCR_VENG1: u32 = 1 << 1;
const VMCR_EOI_MODE: u32 = 1 << 9;

/// Returns the bits of HCR for these conditions, but the trap of DIR.
#[inline]
pub(super) fn maintenance(m: &Maintenance) -> u32 {
    let bit = |on: bool, bit: u32| if on { bit } else { 0 };
    EN | bit(m.lr_entry_not_present, LRENPIE)
        | bit(m.no_pending, NPIE)
        | bit(m.group0_enabled, VGRP0EIE)
        | bit(m.group0_disabled, VGRP0DIE)
        | bit(m.group1_enabled, VGRP1EIE)
        | bit(m.group1_disabled, VGRP1DIE)
}

/// Splits HCR into the count of ends of interrupts that were in no list register, and the rest.
#[inline]
pub(super) fn split_eoi_count(hcr: u32) -> (u8, u32) {
    (((hcr & EOI_COUNT) >> EOI_COUNT_SHIFT) as u8, hcr & !EOI_COUNT)
}

/// Says whether the guest has EOImode 1, where an end of interrupt deactivates nothing.
#[inline]
pub(super) fn has_eoi_mode_1(vmcr: u32) -> bool {
    vmcr & VMCR_EOI_MODE != 0
}

/// Returns which groups the guest has enabled.
#[inline]
pub(super) fn group_enables(vmcr: u32) -> GroupEnables {
    GroupEnables { group0: vmcr & VMCR_VENG0 != 0, group1: vmcr & VMCR_VENG1 != 0 }
}
