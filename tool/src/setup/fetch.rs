// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fetching packages of Debian for another architecture: what all fetches do before and behind what is theirs.

use std::fs;
use std::path::{Path, PathBuf};

use super::apt::Apt;
use super::find_program;
use crate::failure::{Failure, Result};
use crate::isa::Isa;
use crate::ui;

/// What a fetch takes at most, in bytes: package lists, packages, and what is unpacked of them.
const ROOM: u64 = 700 << 20;

/// A fetch into a folder.
pub struct Fetch {
    /// Where the packages come from; it has read their lists.
    pub apt: Apt,
    step: ui::Step,
    /// Where the lists are kept.
    lists: PathBuf,
    /// Where the packages go.
    packages: PathBuf,
}

impl Fetch {
    /// Begins the step of this title, and reads the lists of a release.
    pub fn begin(folder: &Path, title: String, isa: Isa, release: &str) -> Result<Self> {
        Self::begin_upon(folder, title, isa, release, None)
    }

    /// The same of a release that has not all of its packages itself: the others are those of `base`.
    pub fn begin_upon(
        folder: &Path,
        title: String,
        isa: Isa,
        release: &str,
        base: Option<&str>,
    ) -> Result<Self> {
        if find_program("dpkg-deb").is_none() {
            return Err(Failure::missing(
                "dpkg-deb is not on this machine, and Debian's packages are unpacked with it",
            )
            .help("install the package dpkg"));
        }
        super::space::ensure_at(folder, ROOM)?;
        let step = ui::Step::start(title);
        let lists = folder.join("apt");
        // An interrupted fetch may have left packages of another day.
        let _ = fs::remove_dir_all(&lists);
        let apt = Apt::foreign(&lists, isa.debian(), release)?;
        base.map_or(Ok(()), |base| apt.add(base))?;
        step.detail("reading the package lists");
        apt.update()?;
        Ok(Self { apt, step, lists, packages: folder.join("packages") })
    }

    /// Downloads packages; `doing` says so. Returns their files.
    pub fn download(&self, doing: String, names: &[&str]) -> Result<Vec<PathBuf>> {
        self.step.detail(doing);
        // What an interrupted download left is of unknown age.
        let _ = fs::remove_dir_all(&self.packages);
        let files = self.apt.download(names, &self.packages)?;
        self.step.detail("unpacking");
        Ok(files)
    }

    /// Downloads packages with what they depend on; `doing` says so. Returns the files of all that have been downloaded so.
    pub fn download_with_dependencies(&self, doing: &str, names: &[&str]) -> Result<Vec<PathBuf>> {
        self.step.detail(doing);
        let files = self.apt.download_with_dependencies(names)?;
        self.step.detail("unpacking");
        Ok(files)
    }

    /// Ends the step. The lists and packages are of no use any more, and large.
    pub fn done(self) {
        let _ = fs::remove_dir_all(&self.lists);
        let _ = fs::remove_dir_all(&self.packages);
        self.step.done();
    }
}

/// Finds a package's file: apt names it `package_version_architecture.deb`.
pub fn find<'f>(files: &'f [PathBuf], package: &str) -> Result<&'f Path> {
    let is_it = |file: &&PathBuf| file_name(file).split('_').next() == Some(package);
    let found = files.iter().find(is_it).map(PathBuf::as_path);
    found.ok_or_else(|| Failure::failed(format!("apt did not download {package}")))
}

/// The name of a package's file.
pub fn file_name(file: &Path) -> String {
    file.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
