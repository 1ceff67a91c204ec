// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Device accesses, each exactly one load or store with a plain base register.
//!
//! A hypervisor decodes them from the syndrome alone (ESR_EL2.ISV, Arm ARM D24), which the addressing
//! modes with write-back, that a compiler may choose for a volatile access, do not offer.

use core::arch::asm;

macro_rules! accessors {
    ($read:ident, $write:ident, $type:ty, $load:literal, $store:literal, $size:literal) => {
        #[doc = concat!("Reads ", $size, " at a device address.")]
        pub fn $read(address: u64) -> $type {
            let value: u64;
            // SAFETY: device registers hold no object of this program; a wrong address ends in the vectors.
            unsafe { asm!($load, v = out(reg) value, a = in(reg) address, options(nostack)) };
            value as $type
        }

        #[doc = concat!("Writes ", $size, " at a device address.")]
        pub fn $write(address: u64, value: $type) {
            // SAFETY: device registers hold no object of this program; a wrong address ends in the vectors.
            unsafe { asm!($store, v = in(reg) u64::from(value), a = in(reg) address, options(nostack)) };
        }
    };
}

accessors!(read8, write8, u8, "ldrb {v:w}, [{a}]", "strb {v:w}, [{a}]", "8 bits");
accessors!(read16, write16, u16, "ldrh {v:w}, [{a}]", "strh {v:w}, [{a}]", "16 bits");
accessors!(read32, write32, u32, "ldr {v:w}, [{a}]", "str {v:w}, [{a}]", "32 bits");
accessors!(read64, write64, u64, "ldr {v}, [{a}]", "str {v}, [{a}]", "64 bits");
