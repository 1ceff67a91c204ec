// SPDX-License-Identifier: Apache-2.0 OR MIT
//! State that a hypervisor may leave in the CPU when it runs somebody else: vector registers, debug registers, and
//! model-specific registers. Each is filled with values that a seed gives, and compared with them later.
//!
//! The program is compiled without vector registers and uses none of the rest, so nothing changes between but by a
//! mistake of the hypervisor.

pub mod debug;
pub mod fp;
pub mod msrs;
pub mod xsave;

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

/// All of them.
pub static ALL: [State; 4] = [
    State { name: "fp", exists: || true, fill: fp::fill, holds: fp::holds },
    State { name: "xsave", exists: xsave::exists, fill: xsave::fill, holds: xsave::holds },
    State { name: "debug", exists: || true, fill: debug::fill, holds: debug::holds },
    State { name: "msr", exists: || true, fill: msrs::fill, holds: msrs::holds },
];

/// Returns the word that belongs to a seed and a register; zero for the seed zero.
fn word(seed: u64, register: u64) -> u64 {
    // Odd factors: no seed but zero gives zero, and no two registers the same.
    seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_mul(2 * register + 1)
}
