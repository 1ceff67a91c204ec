// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds Chromium, in which the report is tested.

use std::path::PathBuf;

use super::find_program;
use super::packages::Program;

/// What it is called: by Debian, by others.
const PROGRAMS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// How it is had.
pub const PROGRAM: Program = Program { name: "Chromium", packages: &["chromium"] };

/// Looks for Chromium without changing anything.
pub fn look() -> Option<PathBuf> {
    PROGRAMS.iter().find_map(|name| find_program(name))
}
