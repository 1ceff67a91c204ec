// SPDX-License-Identifier: Apache-2.0 OR MIT
//! List registers as the two manuals lay them out (IHI 0048, 5.3.1; IHI 0069, 12.4).

use turnstile_vgic::{Backing, ListRegister, LrState};

use super::{gich, ich};

/// A timer's interrupt. No two of its numbers are alike, so none is taken for another.
const TIMER: ListRegister = ListRegister {
    intid: 27,
    source: 0,
    priority: 0xa0,
    group1: true,
    state: LrState::Pending,
    backing: Backing::Hardware { pintid: 30 },
};

/// An SGI of which the guest's end is to be told.
const SGI: ListRegister = ListRegister {
    intid: 3,
    source: 5,
    group1: false,
    state: LrState::PendingActive,
    backing: Backing::Software { eoi_maintenance: true },
    ..TIMER
};

#[test]
fn a_gicv2s_list_register_is_encoded_as_the_manual_lays_it_out() {
    assert_eq!(gich::encode(TIMER), 1 << 31 | 1 << 30 | 0b01 << 28 | 0x14 << 23 | 30 << 10 | 27);
    assert_eq!(gich::encode(SGI), 0b11 << 28 | 0x14 << 23 | 1 << 19 | 5 << 10 | 3);
}

#[test]
fn a_gicv3s_list_register_is_encoded_as_the_manual_lays_it_out() {
    assert_eq!(ich::encode(TIMER), 0b01 << 62 | 1 << 61 | 1 << 60 | 0xa0 << 48 | 30 << 32 | 27);
    assert_eq!(ich::encode(SGI), 0b11 << 62 | 0xa0 << 48 | 1 << 41 | 3);
}
