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

use turnstile_guests_common::state::word;
pub use turnstile_guests_common::state::{Present, State, seed};

/// All of them.
pub static ALL: [State; 4] = [
    State { name: "fp", exists: || true, fill: fp::fill, holds: fp::holds },
    State { name: "xsave", exists: xsave::exists, fill: xsave::fill, holds: xsave::holds },
    State { name: "debug", exists: || true, fill: debug::fill, holds: debug::holds },
    State { name: "msr", exists: || true, fill: msrs::fill, holds: msrs::holds },
];
