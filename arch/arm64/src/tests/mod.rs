// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of the crate as a whole.

mod reach;
