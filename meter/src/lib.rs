// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The meter: a QEMU TCG plugin that counts what a hypervisor executes between exit and entry, whatever it is.
//!
//! It tells the guest from the rest by privilege and, where that does not suffice, by ranges of program counters.
//! From the first instruction outside the guest to the next one inside it, on one CPU, is a *visit*. Visits are
//! grouped by CPU, reason and the guest's program counter; of the most frequent visit of each group the reading
//! tells the operations by class. `docs/src/meter.md` describes the options and the reading.
//!
//! | module | holds |
//! |---|---|
//! | [`options`] | the plugin's command line |
//! | [`classify`] | what an instruction does, per architecture |
//! | [`block`] | a translated block, decoded once |
//! | [`tally`] | operations by class |
//! | [`footprint`] | lines and pages that are touched |
//! | [`visits`] | the accounting: from blocks to visits and groups |
//! | [`machine`] | registers of the machine, as far as the accounting needs them |
//! | [`output`] | the reading as JSON |
//! | `plugin`, `ffi` | QEMU's side; not part of unit tests, which run without QEMU |

#![cfg_attr(test, allow(dead_code, reason = "QEMU's side, which uses it, is no part of unit tests"))]

mod block;
mod classify;
mod footprint;
mod isa;
mod machine;
mod options;
mod output;
mod power64_interrupts;
mod tally;
mod visits;

#[cfg(not(test))]
mod ffi;
#[cfg(not(test))]
mod plugin;
