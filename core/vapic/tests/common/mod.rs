// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the tests have in common: an ideal APIC, and a machine for the one under test.
#![allow(dead_code, reason = "each test uses a part of it")]

pub mod reference;
pub mod world;
