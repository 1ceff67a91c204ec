// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The service between a guest's driver and a pool.

mod asked;
mod host;
mod reports;
