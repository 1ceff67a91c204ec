// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a CPU needs so that a guest cannot steer the hypervisor's speculation, and what guests are told about it.
//!
//! Each architecture has a module with its weaknesses, what a CPU says about them, and the words of `mitigations=`. Their `decide`
//! functions are pure: the `arch` crates read the registers, ask the firmware, and apply the decision.
#![no_std]
#![forbid(unsafe_code)]

pub mod arm64;
pub mod power64;
mod state;
pub mod x86_64;

pub use state::State;

/// What a word of the command line that chooses mitigations begins with.
const WORD: &str = "mitigations=";

/// Reads the words of a command line; the last one that is understood counts.
fn last_word<T: Default>(line: &str, from_word: impl Fn(&str) -> Option<T>) -> T {
    line.split_ascii_whitespace().filter_map(from_word).next_back().unwrap_or_default()
}
