// SPDX-License-Identifier: Apache-2.0 OR MIT
//! AMD64 with SVM.
//!
//! Four weaknesses are judged, each for one CPU, from its family and from what CPUID says:
//!
//! | name here | what | CVE | remedy |
//! |---|---|---|---|
//! | targets | branch targets that a guest trained (Spectre variant 2) | 2017-5715 | Automatic IBRS and IBPB between vCPUs, or IBPB on each exit |
//! | returns | returns, predicted by what a guest left: the return stack, branch type confusion (Retbleed), Inception (SRSO) | 2022-29900, 2023-20569 | a filled return stack, IBPB on each exit, or BP_CFG once |
//! | buffers | data of the hypervisor that a guest samples (transient scheduler attacks) | 2024-36350, 2024-36357 | VERW on each entry |
//! | bypass | loads that overtake older stores (variant 4) | 2018-3639 | SSBD, for good |
//!
//! [`decide`] is pure: the `arch` crate asks CPUID, writes the registers once, and chooses the run loop.
//!
//! ```
//! use turnstile_mitigation::State;
//! use turnstile_mitigation::x86_64::{Choice, Cpu, decide};
//!
//! // A Zen 3 with current microcode: returns need IBPB on each exit, which covers targets.
//! let zen3 = Cpu { family: 0x19, model: 1, extended_8_ebx: 1 << 12, extended_21_eax: 1 << 28, ..Cpu::default() };
//! let decision = decide(&zen3, Choice::Auto);
//! assert!(decision.exit.barrier && decision.exit.fill);
//! assert_eq!((decision.targets, decision.returns), (State::Mitigated, State::Mitigated));
//! ```

mod choice;
mod cpu;
mod decision;
mod exit;
mod offer;
mod together;

pub use choice::Choice;
pub use cpu::{Cpu, spec_ctrl};
pub use decision::{Decision, Once, StopBypass, decide};
pub use exit::Exit;
pub use offer::Offer;
pub use together::Together;
