// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The techniques that make exits cheap: one table of their names and meanings, and [`Set`]s of them.
//!
//! An image that is built for ablation takes a set of techniques off at boot (`without=NAME,…` on its command line);
//! the tool measures what each is worth. Both read the names here.
//!
//! ```
//! use turnstile_techniques::{Set, Technique};
//!
//! let off = Set::parse("el1-resident,fp-resident").unwrap();
//! assert!(off.contains(Technique::FpResident) && !off.contains(Technique::LightExit));
//! assert_eq!(off.to_string(), "el1-resident,fp-resident");
//! ```
#![no_std]
#![forbid(unsafe_code)]

mod set;
mod table;

pub use set::{Set, Unknown};
pub use table::{Architecture, Technique};
