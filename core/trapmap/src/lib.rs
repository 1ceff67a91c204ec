// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Maps trapped encodings to their handlers, decided at compile time.
//!
//! A trap brings an encoding: a system register in a syndrome, a function identifier in a register. Which
//! handler it belongs to is known when the hypervisor is compiled, so the lookup is one indexed load:
//!
//! - [`TrapMap`]: AArch64 system registers (ESR_ELx of exception class 0x18), a direct-mapped table;
//! - [`CallMap`]: sparse 32-bit identifiers (SMCCC functions), a perfect hash found by the compiler;
//! - [`HcallMap`]: POWER's hypervisor calls, whose numbers are small multiples of four.
//!
//! A handler is whatever small `Copy` type the user chooses, best a fieldless `enum` of one byte, matched after
//! the lookup: that keeps indirect calls out of the exit path.
//!
//! ```
//! use turnstile_trapmap::{SysReg, TrapMap};
//!
//! #[derive(Clone, Copy, PartialEq, Debug)]
//! #[repr(u8)]
//! enum Handler { Undefined, GenerateSgi }
//!
//! static MAP: TrapMap<Handler> =
//!     TrapMap::new(Handler::Undefined, &[(SysReg::new(3, 0, 12, 11, 5), Handler::GenerateSgi)]);
//!
//! // MSR ICC_SGI1R_EL1, X2, as ESR_EL2.ISS shows it.
//! let iss = 3 << 20 | 5 << 17 | 12 << 10 | 2 << 5 | 11 << 1;
//! assert_eq!(MAP.lookup(iss), Handler::GenerateSgi);
//! ```
//!
//! [`Linear`] and [`Binary`] search a list instead, as hypervisors did before and after the first seed; they are
//! here to be measured against.
#![no_std]
#![forbid(unsafe_code)]

mod calls;
mod hcalls;
mod names;
mod search;
mod sysreg;
mod table;

pub use calls::CallMap;
pub use hcalls::HcallMap;
pub use names::name;
pub use search::{Binary, Linear, by_encoding, flat, flat_len};
pub use sysreg::SysReg;
pub use table::{Group, TrapMap};

/// The examples of the README compile and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
