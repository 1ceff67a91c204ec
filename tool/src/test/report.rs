// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The stage that opens the report of `turnstile bench --html` in a browser.

use super::host::{self, Stage};
use super::{Counts, Verdict};
use crate::layout::Layout;
use crate::setup::chromium;

/// The stage's name.
pub const NAME: &str = "tool/report";

/// Gets a browser and runs `tool/tests/browser` with it; without one the stage is skipped.
pub fn run(layout: &Layout) -> (Counts, Verdict) {
    match chromium::ensure(layout) {
        Ok(browser) => host::run(layout, &Stage::report(browser)),
        Err(failure) => (Counts { skipped: 1, ..Counts::default() }, Verdict::Skipped(failure.to_string())),
    }
}
