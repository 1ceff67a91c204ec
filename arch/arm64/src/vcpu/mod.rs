// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is done with one vCPU.

pub mod facility;
pub mod frame;
pub mod statistics;
pub mod switch;
