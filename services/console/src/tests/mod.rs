// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The console against a driver, and killed anywhere.

mod characters;
mod host;
