// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the guest itself lies.

unsafe extern "C" {
    static __image_start: u8;
    static __image_end: u8;
}

/// Returns the first address of the image and the first behind it, stacks and zeroed data included: the linker scripts name them.
// Inlined, so that only guests need the names.
#[inline]
pub fn image() -> (u64, u64) {
    (&raw const __image_start as u64, &raw const __image_end as u64)
}
