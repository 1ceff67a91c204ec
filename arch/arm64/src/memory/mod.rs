// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Physical memory: the hypervisor's own, and guests'.

mod bulk;
pub mod coherence;
pub mod demand;
#[cfg(target_os = "none")]
mod el2;
pub mod flash;
#[cfg(target_os = "none")]
pub mod guest;
#[cfg(target_os = "none")]
pub mod host;
pub mod service;
pub mod stolen;
pub mod window;

use turnstile_paging::Stage2;

use crate::cpu::regs;

#[cfg(target_os = "none")]
pub use guest::{FlashMemory, GuestMemory};
#[cfg(target_os = "none")]
pub use host::{free_bytes, stolen_time_records, vcpu_stack};
#[cfg(target_os = "none")]
pub use turnstile_arch_common::memory::Error;

/// Returns VTCR_EL2 for tables of this format.
fn stage2_control(format: &Stage2) -> u64 {
    let parange = (regs::ID_AA64MMFR0_EL1.read() & 0xf).min(5);
    // RES1, PS, TG0 = 4 KiB, SH0 = inner, ORGN0 = IRGN0 = write-back (Arm ARM D24.2.203).
    1 << 31 | parange << 16 | 0b11 << 12 | 0b01 << 10 | 0b01 << 8 | format.sl0() << 6 | format.t0sz()
}
