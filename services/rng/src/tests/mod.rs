// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The service between a guest's driver and a generator that may run dry.

mod host;
mod mmio;
mod requests;
