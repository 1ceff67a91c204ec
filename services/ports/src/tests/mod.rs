// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The ports against a driver, and killed anywhere.

mod bytes;
mod host;
