// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Armv8-A.
//!
//! Three weaknesses are judged, each for one CPU, from its identification registers and from what its firmware
//! answers (SMCCC, DEN0028):
//!
//! | name here | what | CVE | remedy on an exit |
//! |---|---|---|---|
//! | targets | branch targets that a guest trained (Spectre variant 2) | 2017-5715 | firmware: SMCCC_ARCH_WORKAROUND_1 or 3 |
//! | history | branch history that a guest left behind (Spectre-BHB) | 2022-23960 | a loop, CLRBHB, or SMCCC_ARCH_WORKAROUND_3 |
//! | bypass | loads that overtake older stores (variant 4) | 2018-3639 | none: PSTATE.SSBS, or SMCCC_ARCH_WORKAROUND_2 once |
//!
//! [`decide`] is pure: the `arch` crate reads the registers, asks the firmware, and applies the decision.
//!
//! ```
//! use turnstile_mitigation::State;
//! use turnstile_mitigation::arm64::{Choice, Cpu, Exit, Firmware, decide};
//!
//! // A Neoverse N1: CSV2 is 1, so only the history is to be cleared, by a loop of 24 turns.
//! let n1 = Cpu { midr: 0x410f_d0c0, pfr0: 1 << 56, ..Cpu::default() };
//! let decision = decide(&n1, Firmware::NONE, Choice::Auto);
//! assert_eq!(decision.exit, Exit::Loop(24));
//! assert_eq!((decision.targets, decision.history), (State::Unaffected, State::Mitigated));
//! ```

mod choice;
mod cores;
mod decision;
mod firmware;

pub use choice::Choice;
pub use cores::Cpu;
pub use decision::{Decision, Exit, decide};
pub use firmware::{Answer, Answers, Firmware};
