// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds Chromium, in which the report is tested, or installs it where that is possible.

use std::path::PathBuf;

use super::apt::Apt;
use super::{find_program, is_root, qemu};
use crate::failure::{Failure, Result};
use crate::layout::Layout;
use crate::ui;

/// What it is called: by Debian, by others.
const PROGRAMS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
/// The package that carries it.
const PACKAGE: &str = "chromium";

/// Looks for Chromium without changing anything.
pub fn look() -> Option<PathBuf> {
    PROGRAMS.iter().find_map(|name| find_program(name))
}

/// Finds Chromium, installing it if it is missing and may be installed.
pub fn ensure(layout: &Layout) -> Result<PathBuf> {
    let missing = |what: &str| Failure::missing(what).help(advice());
    if let Some(path) = look() {
        return Ok(path);
    }
    let release = qemu::debian_release().filter(|_| is_root());
    let release = release.ok_or_else(|| missing("Chromium is not installed"))?;
    install(layout, &release).map_err(|failure| failure.help(advice()))?;
    look().ok_or_else(|| missing("Chromium is still not there"))
}

fn install(layout: &Layout, release: &str) -> Result<()> {
    ui::note(&format!("installing {PACKAGE} from Debian {release} (apt's own sources stay as they are)"));
    let step = ui::Step::start(format!("installing {PACKAGE}"));
    let folder = layout.cache().join("apt-browser");
    let apt = Apt::host(&folder, release)?;
    step.detail("reading the package lists");
    apt.update()?;
    step.detail("downloading and installing");
    apt.install(&[PACKAGE], release)?;
    // The lists are of no use any more, and large.
    let _ = std::fs::remove_dir_all(&folder);
    step.done();
    Ok(())
}

/// Says how a user gets Chromium on this machine.
pub fn advice() -> String {
    match qemu::debian_release() {
        Some(_) => format!("as root: apt-get update && apt-get install {PACKAGE}"),
        None => "install Chromium by your system's package manager".to_owned(),
    }
}
