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

use crate::read_sysreg;

/// Registers of one kind.
pub struct State {
    /// What the report calls them.
    pub name: &'static str,
    /// Says whether this machine has them.
    pub exists: fn() -> bool,
    /// Fills them with the values of a seed, which is not zero.
    pub fill: fn(u64),
    /// Says whether they hold the values of a seed; zero is for those after a reset.
    pub holds: fn(u64) -> bool,
}

/// All of them. Vectors are those of SVE where it exists: the FP registers are part of them.
pub static ALL: [State; 5] = [
    State { name: "fp", exists: || fp::exists() && !sve::exists(), fill: fp::fill, holds: fp::holds },
    State { name: "sve", exists: sve::exists, fill: sve::fill, holds: sve::holds },
    State { name: "pmu", exists: pmu::has_counters, fill: pmu::fill, holds: pmu::holds },
    State { name: "debug", exists: || true, fill: debug::fill, holds: debug::holds },
    State { name: "pauth", exists: pauth::exists, fill: pauth::fill, holds: pauth::holds },
];

/// Returns the word that belongs to a seed and a register; zero for the seed zero.
fn word(seed: u64, register: u64) -> u64 {
    // Odd factors: no seed but zero gives zero, and no two registers the same.
    seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_mul(2 * register + 1)
}

/// Returns a field of an ID register.
fn field(register: u64, shift: u32) -> u64 {
    register >> shift & 0xf
}

/// Returns ID_AA64PFR0_EL1.
fn features() -> u64 {
    read_sysreg!("id_aa64pfr0_el1")
}
