// SPDX-License-Identifier: Apache-2.0 OR MIT
//! State that a hypervisor may leave in the CPU when it runs somebody else: vector-scalar registers and special-purpose
//! registers. Each is filled with values that a seed gives, and compared with them later.
//!
//! The program is compiled without vector registers and uses none of the rest, so nothing changes between but by a
//! mistake of the hypervisor.

pub mod numbers;
pub mod segments;
pub mod sprs;
pub mod vsx;

use turnstile_guests_common::state::word;
pub use turnstile_guests_common::state::{Present, State, seed};

/// All of them.
pub static ALL: [State; 7] = [
    State { name: "vsx", exists: || true, fill: vsx::fill, holds: vsx::holds },
    State {
        name: "sprs",
        exists: || true,
        fill: |seed| sprs::fill(&sprs::PLAIN, seed),
        holds: |seed| sprs::holds(&sprs::PLAIN, seed),
    },
    State {
        name: "keys",
        exists: || true,
        fill: |seed| sprs::fill(&sprs::KEYS, seed),
        holds: |seed| sprs::holds(&sprs::KEYS, seed),
    },
    State {
        name: "ebb",
        exists: || true,
        fill: |seed| sprs::fill(&sprs::EBB, seed),
        holds: |seed| sprs::holds(&sprs::EBB, seed),
    },
    State {
        name: "pmu",
        exists: || true,
        fill: |seed| sprs::fill(&sprs::PMU, seed),
        holds: |seed| sprs::holds(&sprs::PMU, seed),
    },
    State { name: "segments", exists: || true, fill: segments::fill, holds: segments::holds },
    State { name: "numbers", exists: || true, fill: numbers::fill, holds: numbers::holds },
];
