// SPDX-License-Identifier: Apache-2.0 OR MIT
//! State that a hypervisor may leave in the CPU when it runs somebody else: vector registers, the PMU, debug registers,
//! keys of pointer authentication. Each is filled with values that a seed gives, and compared with them later.
//!
//! The program is compiled without vector registers and uses none of the rest, so nothing changes between but by a
//! mistake of the hypervisor.

pub mod debug;
pub mod fp;
pub mod pauth;
pub mod pmu;
pub mod sve;

use turnstile_guests_common::state::word;
pub use turnstile_guests_common::state::{Present, State, seed};

use crate::read_sysreg;

/// All of them. Vectors are those of SVE where it exists: the FP registers are part of them.
pub static ALL: [State; 5] = [
    State { name: "fp", exists: || fp::exists() && !sve::exists(), fill: fp::fill, holds: fp::holds },
    State { name: "sve", exists: sve::exists, fill: sve::fill, holds: sve::holds },
    State { name: "pmu", exists: pmu::has_counters, fill: pmu::fill, holds: pmu::holds },
    State { name: "debug", exists: || true, fill: debug::fill, holds: debug::holds },
    State { name: "pauth", exists: pauth::exists, fill: pauth::fill, holds: pauth::holds },
];

/// Returns a field of an ID register.
fn field(register: u64, shift: u32) -> u64 {
    register >> shift & 0xf
}

/// Returns ID_AA64PFR0_EL1.
fn features() -> u64 {
    read_sysreg!("id_aa64pfr0_el1")
}
