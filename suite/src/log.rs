// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The logs of tests.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use turnstile::failure::{Context, Result};
use turnstile::layout::Layout;

/// A test's log.
pub struct Log(File);

impl Log {
    /// Begins a log.
    pub fn create(path: &Path) -> Result<Self> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).context(|| format!("cannot create {}", folder.display()))?;
        }
        File::create(path).map(Log).context(|| format!("cannot write {}", path.display()))
    }

    /// Writes text as it is. A disk that is full fails tests in other ways.
    pub fn text(&mut self, text: &str) {
        let _ = self.0.write_all(text.as_bytes());
    }

    /// Writes a line.
    pub fn line(&mut self, line: &str) {
        self.text(&format!("{line}\n"));
    }
}

/// Where a test's log is kept.
pub fn log_file(layout: &Layout, name: &str) -> PathBuf {
    layout.target().join("test-logs").join(format!("{}.log", name.replace('/', "-")))
}
