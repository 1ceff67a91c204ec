// SPDX-License-Identifier: Apache-2.0 OR MIT
//! State that a hypervisor may leave in the CPU when it runs somebody else: vector-scalar registers and special-purpose
//! registers. Each is filled with values that a seed gives, and compared with them later.
//!
//! The program is compiled without vector registers and uses none of the rest, so nothing changes between but by a
//! mistake of the hypervisor.

pub mod sprs;
pub mod vsx;

/// Registers of one kind.
pub struct State {
    /// What the report calls them.
    pub name: &'static str,
    /// Fills them with the values of a seed, which is not zero.
    pub fill: fn(u64),
    /// Says whether they hold the values of a seed; zero is for those after a reset.
    pub holds: fn(u64) -> bool,
}

/// All of them.
pub static ALL: [State; 5] = [
    State { name: "vsx", fill: vsx::fill, holds: vsx::holds },
    State {
        name: "sprs",
        fill: |seed| sprs::fill(&sprs::PLAIN, seed),
        holds: |seed| sprs::holds(&sprs::PLAIN, seed),
    },
    State {
        name: "keys",
        fill: |seed| sprs::fill(&sprs::KEYS, seed),
        holds: |seed| sprs::holds(&sprs::KEYS, seed),
    },
    State {
        name: "ebb",
        fill: |seed| sprs::fill(&sprs::EBB, seed),
        holds: |seed| sprs::holds(&sprs::EBB, seed),
    },
    State {
        name: "pmu",
        fill: |seed| sprs::fill(&sprs::PMU, seed),
        holds: |seed| sprs::holds(&sprs::PMU, seed),
    },
];

/// Returns the word that belongs to a seed and a register; zero for the seed zero.
fn word(seed: u64, register: u64) -> u64 {
    // Odd factors: no seed but zero gives zero, and no two registers the same.
    seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_mul(2 * register + 1)
}
