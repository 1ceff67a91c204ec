// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the tests share: a model of the hardware, an ideal interrupt controller to compare with, and a
//! world of several vCPUs around the code under test.
#![allow(dead_code, missing_docs, reason = "each test file uses a part of it")]

pub mod bench;
mod compare;
mod events;
pub mod hardware;
pub mod machine;
pub mod reference;
pub mod world;
