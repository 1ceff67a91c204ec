// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Room on the disk for build products: a full disk shows as an odd failure of a compiler, minutes later.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use walkdir::WalkDir;

use crate::failure::{Failure, Result};
use crate::layout::{self, Layout, disk_full};

/// What `demo` builds and downloads, in bytes.
pub const DEMO: u64 = 2 * GIB;

/// What the whole test suite builds and downloads, in bytes.
pub const SUITE: u64 = 7 * GIB;

const GIB: u64 = 1 << 30;

/// Fails if the build products do not fit: `all` bytes, less what is there already.
pub fn ensure(layout: &Layout, all: u64) -> Result<()> {
    let free = free(layout)?;
    if free >= all {
        return Ok(());
    }
    let missing = all.saturating_sub(built(layout));
    if free >= missing {
        return Ok(());
    }
    let what = format!("not enough disk space: {} are free, {} are needed", gib(free), gib(missing));
    Err(Failure::missing(what).help(format!(
        "make room on the disk of {}, or set CARGO_TARGET_DIR to a folder on another one",
        Layout::shown(layout.target())
    )))
}

/// Fails if a download into a folder, which takes so many bytes with what it is unpacked to, does not fit: apt would say that
/// something is wrong with the network.
pub fn ensure_at(folder: &Path, needed: u64) -> Result<()> {
    if layout::free(folder)? < needed { Err(disk_full(folder, needed)) } else { Ok(()) }
}

/// What has been built, in bytes.
pub fn built(layout: &Layout) -> u64 {
    taken(layout.target())
}

/// What an ordinary user may still write where the build products are, in bytes.
pub fn free(layout: &Layout) -> Result<u64> {
    layout::free(layout.target())
}

/// A size as it is printed.
pub fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / GIB as f64)
}

/// What a folder takes on the disk, in bytes. Files of several names, as cargo makes them, count once, and a file that
/// goes away meanwhile counts for nothing.
fn taken(folder: &Path) -> u64 {
    /// The unit of `st_blocks` (POSIX leaves it open; Linux has this one).
    const BLOCK: u64 = 512;
    let mut seen = HashSet::new();
    let files = WalkDir::new(folder).into_iter().flatten().filter_map(|entry| entry.metadata().ok());
    files.filter(|file| seen.insert((file.dev(), file.ino()))).map(|file| file.blocks() * BLOCK).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_with_what_to_do() {
        let layout = Layout::find().unwrap();
        assert!(ensure(&layout, 0).is_ok());
        let said = ensure(&layout, 1 << 60).unwrap_err().full();
        assert!(said.contains("GiB are needed") && said.contains("CARGO_TARGET_DIR"), "{said}");
    }

    #[test]
    fn full_disk_is_said_to_be_one() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("no/such/folder");
        assert!(ensure_at(&inside, 0).is_ok());
        let said = ensure_at(&inside, 1 << 60).unwrap_err();
        assert!(said.what().contains("is full: 1152921504606846976 bytes are needed"), "{}", said.what());
        assert!(
            said.what().contains("no/such/folder") && said.what().contains("are free"),
            "{}",
            said.what()
        );
        // Linux's own full disk.
        let full = std::fs::write("/dev/full", b"x").unwrap_err();
        assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    }

    #[test]
    fn what_is_there_is_counted_once() {
        let folder = tempfile::tempdir().unwrap();
        let empty = taken(folder.path());
        let file = folder.path().join("file");
        std::fs::write(&file, vec![1; 1 << 20]).unwrap();
        std::fs::hard_link(&file, folder.path().join("again")).unwrap();
        let grown = taken(folder.path()) - empty;
        assert!((1 << 20..3 << 19).contains(&grown), "{grown}");
        assert_eq!(taken(&folder.path().join("nothing")), 0);
    }
}
