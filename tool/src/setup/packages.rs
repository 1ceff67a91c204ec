// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs of this machine that not every command uses: looked for, and installed where that is possible.

use super::apt::Apt;
use super::{is_root, qemu};
use crate::failure::{Failure, Result};
use crate::layout::Layout;
use crate::ui;

/// A program, and how it is had.
pub struct Program {
    /// What users call it.
    pub name: &'static str,
    /// Debian's packages that carry it.
    pub packages: &'static [&'static str],
}

impl Program {
    /// Finds it by `look`, and installs it if it is missing and may be installed.
    pub fn ensure<T>(&self, layout: &Layout, look: fn() -> Option<T>) -> Result<T> {
        let missing = |what: &str| Failure::missing(format!("{} is {what}", self.name)).help(self.advice());
        if let Some(found) = look() {
            return Ok(found);
        }
        let release = qemu::debian_release().filter(|_| is_root()).ok_or_else(|| missing("not installed"))?;
        self.install(layout, &release).map_err(|failure| failure.help(self.advice()))?;
        look().ok_or_else(|| missing("still not there"))
    }

    fn install(&self, layout: &Layout, release: &str) -> Result<()> {
        let name = self.name;
        ui::note(&format!("installing {name} from Debian {release} (apt's own sources stay as they are)"));
        let step = ui::Step::start(format!("installing {name}"));
        let folder = layout.cache().join("apt-tests");
        let apt = Apt::host(&folder, release)?;
        step.detail("reading the package lists");
        apt.update()?;
        step.detail("downloading and installing");
        apt.install(self.packages, release)?;
        // The lists are of no use any more, and large.
        let _ = std::fs::remove_dir_all(&folder);
        step.done();
        Ok(())
    }

    /// Says how a user gets it on this machine.
    pub fn advice(&self) -> String {
        match qemu::debian_release() {
            Some(_) => format!("as root: apt-get update && apt-get install {}", self.packages.join(" ")),
            None => format!("install {} with your system's package manager", self.name),
        }
    }
}
