// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the state of a vCPU consists of, by groups that are stored and loaded. Whose state is in a CPU's registers, and when it
//! moves, is a matter of `vcpu/facility.rs`.
//!
//! | file | what |
//! |---|---|
//! | `groups` | how groups of registers are read together, and written together, where they differ |
//! | `registers` | which they are |
//! | `demand` | the performance monitor and event-based branches: loaded once a guest uses them; transactions: kept from guests |
//! | `fp` | FP, vector and VSX registers |
//! | `residue` | what of a guest no register holds: it is not moved, but forgotten |
//! | `saved`, `techniques` | for exits that do without techniques: where state goes, and which are taken off (feature `ablation`) |

pub(crate) mod demand;
pub(crate) mod fp;
mod groups;
#[cfg(test)]
mod isa;
pub(crate) mod registers;
pub(crate) mod residue;
#[cfg(feature = "ablation")]
pub(crate) mod saved;
#[cfg(feature = "ablation")]
pub(crate) mod techniques;

use demand::Demanded;
pub use demand::set_enforced;
use fp::Vectors;
use groups::Idle;
pub use registers::Modes;
use registers::{Common, Emulated, Newer, NewerEmulated, NewerMonitor};

/// Finds out what this CPU, and with it all others, has. Once, on the boot CPU, before any guest is built.
pub fn discover() {
    Newer::discover();
    NewerMonitor::discover();
    if !demand::is_enforced() {
        Emulated::discover();
        NewerEmulated::discover();
    }
}

/// What a vCPU has that is not in registers.
#[derive(Debug)]
pub struct State {
    /// What guests write by themselves.
    pub(crate) common: Common,
    /// The same of CPUs that have it.
    pub(crate) newer: Newer,
    /// What an emulator lets guests write besides.
    pub(crate) emulated: Idle<Emulated>,
    /// The same of CPUs of Power ISA 3.1.
    pub(crate) newer_emulated: Idle<NewerEmulated>,
    /// What the hypervisor writes for the guest.
    pub(crate) modes: Modes,
    /// What the guest has when it uses it.
    pub(crate) demanded: Demanded,
    /// FP, vector and VSX registers.
    pub(crate) vectors: Vectors,
    /// When its decrementer becomes negative, by the time base.
    pub(crate) decrementer: u64,
    /// The CPU that it was last loaded on.
    pub(crate) cpu: Option<usize>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            common: Common::RESET,
            newer: Newer::default(),
            emulated: Idle::RESET,
            newer_emulated: Idle::RESET,
            modes: Modes::RESET,
            demanded: Demanded::new(),
            vectors: Vectors::new(),
            decrementer: u64::MAX >> 1,
            cpu: None,
        }
    }
}
