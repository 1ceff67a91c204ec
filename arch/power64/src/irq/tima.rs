// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The thread interrupt management area: what the interrupt controller has of the CPU that looks at it (OPAL's
//! `doc/xive.rst`, section "Interrupt targets"; offsets as in Linux' `xive-regs.h`).
//!
//! Each CPU sees itself at the same addresses, in one page for each level of privilege. From its own page the hypervisor
//! reaches the **operating system's ring**, too: which vCPU is resident, the priority from which on it is interrupted, and
//! what is pending. An interrupt that is pending there becomes the guest's external interrupt, which waits until the guest's
//! MSR has EE, without anything that the hypervisor does.

use core::sync::atomic::{AtomicU64, Ordering};

/// Where the hypervisor's page is; zero on a machine without.
static PAGE: AtomicU64 = AtomicU64::new(0);

/// Tells where the hypervisor's page is.
///
/// # Safety
/// It is what the device tree says, and the controller is in exploitation mode.
pub unsafe fn set(page: u64) {
    PAGE.store(page, Ordering::Relaxed);
}

/// Returns where the hypervisor's page is: on every CPU the same address, at which it sees itself.
#[inline(always)] // One load.
pub fn page() -> u64 {
    PAGE.load(Ordering::Relaxed)
}

macro_rules! registers {
    ($($(#[$doc:meta])* $name:ident, $type:ty, $offset:literal, $load:ident, $store:ident;)+) => {$(
        $(#[$doc])*
        pub struct $name;

        #[allow(dead_code, reason = "most registers are either loaded or stored")]
        impl $name {
            /// Loads it, from the [`page`].
            #[inline(always)] // Two instructions.
            pub fn load(self, page: u64) -> $type {
                #[cfg(target_os = "none")]
                // SAFETY: a register of this CPU's own; what loading does is what the register is for.
                unsafe { crate::cpu::inhibited::$load(page + $offset) }
                #[cfg(not(target_os = "none"))]
                {
                    let _ = page;
                    crate::cpu::regs::fakes::read(stringify!($name)) as $type
                }
            }

            /// Stores to it, in the [`page`].
            ///
            /// # Safety
            /// The resident vCPU stays the one whose state is in the ring.
            #[inline(always)] // Two instructions.
            pub unsafe fn store(self, page: u64, value: $type) {
                #[cfg(target_os = "none")]
                // SAFETY: the caller's promise.
                unsafe { crate::cpu::inhibited::$store(page + $offset, value) }
                #[cfg(not(target_os = "none"))]
                {
                    let _ = page;
                    crate::cpu::regs::fakes::write(stringify!($name), value.into());
                }
            }
        }
    )+};
}

registers! {
    /// The guest's ring: what it announces, priority, pending priorities. See [`NOTIFIED`].
    OsState, u32, 0x10, load32, store32;
    /// The guest's ring, both words of its state.
    OsWords, u64, 0x10, load64, store64;
    /// The priority from which on the guest is not interrupted: 0 masks all, 0xff nothing.
    OsPriority, u8, 0x11, load8, store8;
    /// Whose ring it is: storing makes a virtual processor resident.
    OsCam, u32, 0x18, load32, store32;
    /// Loading accepts the pending interrupt in the guest's place.
    OsAcknowledge, u16, 0x810, load16, store16;
    /// Storing a priority makes it pending.
    OsPending, u8, 0x812, load8, store8;
    /// Loading takes the virtual processor away: what comes for it from then on is kept with its own state in memory.
    OsPull, u32, 0x818, load32, store32;
    /// The priority from which on the hypervisor is not interrupted.
    HvPriority, u8, 0x31, load8, store8;
    /// Loading accepts the interrupt that is pending for the hypervisor: see [`HV_NOTIFIED`].
    HvAcknowledge, u16, 0x830, load16, store16;
}

/// In [`OsState`]: an external interrupt is pending for the guest.
pub const NOTIFIED: u32 = 1 << 31;
/// In [`HvAcknowledge`]: the low byte is a priority at which something is in a queue of the hypervisor.
pub const HV_NOTIFIED: u16 = 0b11 << 14;
/// In the word of [`OsCam`]: the virtual processor is resident.
pub const VALID: u32 = 1 << 31;
/// In [`OsWords`]: a guest's ring, with the bits that belong to nobody as after a reset, all interrupts masked.
pub const RESET: u64 = 0x0000_00ff_ff00_ffff;
/// The part of [`OsWords`] that is a vCPU's own: its priority, and which priorities are pending.
pub const OWN: u64 = 0x00ff_ff00_0000_0000;
