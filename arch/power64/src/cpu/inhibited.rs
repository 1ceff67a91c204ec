// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Cache-inhibited accesses to device registers. In hypervisor real mode storage is cached; only these instructions reach a
//! device (Power ISA 3.0B Book III, 4.4.1). Devices are big-endian; values here are in the byte order of the CPU.

macro_rules! accesses {
    ($($(#[$doc:meta])* $load:ident, $store:ident, $type:ty, $load_asm:literal, $store_asm:literal;)+) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// The address is that of a device's register of this size, whose loads do not break what the hypervisor relies on.
        #[cfg(target_os = "none")]
        #[inline(always)] // Two instructions.
        pub unsafe fn $load(address: u64) -> $type {
            let value: u64;
            // SAFETY: the caller's promise. Not `pure`: loads have effects.
            unsafe {
                core::arch::asm!(
                    concat!($load_asm, " {value}, 0, {address}"), value = out(reg) value, address = in(reg) address,
                    options(nostack, preserves_flags)
                );
            }
            <$type>::from_be(value as $type)
        }

        /// Stores to it.
        ///
        /// # Safety
        /// The address is that of a device's register of this size, and the value keeps the isolation of guests intact.
        #[cfg(target_os = "none")]
        #[inline(always)] // Two instructions.
        pub unsafe fn $store(address: u64, value: $type) {
            // SAFETY: the caller's promise.
            unsafe {
                core::arch::asm!(
                    concat!($store_asm, " {value}, 0, {address}"), value = in(reg) u64::from(value.to_be()),
                    address = in(reg) address, options(nostack, preserves_flags)
                );
            }
        }
    )+};
}

accesses! {
    /// Loads a byte.
    load8, store8, u8, "lbzcix", "stbcix";
    /// Loads a halfword.
    load16, store16, u16, "lhzcix", "sthcix";
    /// Loads a word.
    load32, store32, u32, "lwzcix", "stwcix";
    /// Loads a doubleword.
    load64, store64, u64, "ldcix", "stdcix";
}
