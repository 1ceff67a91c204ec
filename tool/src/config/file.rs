// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads files that a user named, which may be anything: pipes, devices, or far too long.

use std::fmt;
use std::fs::{self, File, FileType};
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use super::size::show_size;

/// Why a file was not read.
#[derive(Debug)]
pub enum Refused {
    /// It is not there, or reading it failed.
    Unreadable(io::Error),
    /// It is not a file but this.
    NotFile(&'static str),
    /// It is longer than it may be.
    TooLong {
        /// How many bytes it has, at least.
        length: u64,
        /// How many it may have.
        most: u64,
    },
}

impl fmt::Display for Refused {
    /// Continues a sentence that starts with the file's name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Unreadable(error) => write!(f, "cannot be read: {error}"),
            Refused::NotFile(kind) => write!(f, "is not a file but {kind}"),
            Refused::TooLong { length, most } => {
                write!(f, "is too long: {}, and at most {} are read", show_size(*length), show_size(*most))
            }
        }
    }
}

/// Reads a regular file of at most `most` bytes.
///
/// What it is and its length are looked at first: opening a pipe waits for its writer, a device never
/// ends, and a sparse file of any length costs nothing until it is read.
pub fn read(path: &Path, most: u64) -> Result<Vec<u8>, Refused> {
    let metadata = fs::metadata(path).map_err(Refused::Unreadable)?;
    if !metadata.is_file() {
        return Err(Refused::NotFile(kind(metadata.file_type())));
    }
    if metadata.len() > most {
        return Err(Refused::TooLong { length: metadata.len(), most });
    }
    read_at_most(path, most)
}

/// The same for a file whose text may also come through a pipe, as a shell's `<(…)` makes one.
pub fn read_text(path: &Path, most: u64) -> Result<Vec<u8>, Refused> {
    if is_pipe(path) { read_at_most(path, most) } else { read(path, most) }
}

/// Says whether a path names a pipe that this process was given. One in a folder may wait for its writer for ever.
pub fn is_pipe(path: &Path) -> bool {
    let is_given = path.starts_with("/dev/fd") || path.starts_with("/proc/self/fd") || path == "/dev/stdin";
    is_given && fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_fifo())
}

fn read_at_most(path: &Path, most: u64) -> Result<Vec<u8>, Refused> {
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(Refused::Unreadable)?;
    // Files of /proc are longer than they say, and others may grow meanwhile.
    file.take(most.saturating_add(1)).read_to_end(&mut bytes).map_err(Refused::Unreadable)?;
    match bytes.len() as u64 {
        length if length > most => Err(Refused::TooLong { length, most }),
        _ => Ok(bytes),
    }
}

/// Says what to do about a file that cannot be read, where `otherwise` is for one that is not there.
pub fn advice(error: &io::Error, otherwise: &'static str) -> &'static str {
    if error.kind() == io::ErrorKind::PermissionDenied {
        "let this user read it: `ls -l` shows who may, `chmod` changes that, also of its folders"
    } else {
        otherwise
    }
}

/// Says what is no regular file.
pub fn kind(file: FileType) -> &'static str {
    match () {
        () if file.is_dir() => "a folder",
        () if file.is_fifo() => "a pipe",
        () if file.is_socket() => "a socket",
        () => "a device",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_is_about_rights_where_they_are_missing() {
        let of = |kind: io::ErrorKind| advice(&kind.into(), "other");
        assert!(of(io::ErrorKind::PermissionDenied).contains("let this user read it"));
        assert_eq!(of(io::ErrorKind::NotFound), "other");
    }

    #[test]
    fn only_short_regular_files_are_read() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("f");
        fs::write(&path, b"12345").unwrap();
        assert_eq!(read(&path, 5).unwrap(), b"12345");
        assert!(matches!(read(&path, 4), Err(Refused::TooLong { length: 5, most: 4 })));
        assert!(matches!(read(folder.path(), 5), Err(Refused::NotFile("a folder"))));
        assert!(matches!(read(Path::new("/dev/zero"), 5), Err(Refused::NotFile("a device"))));
        assert!(matches!(read(&folder.path().join("none"), 5), Err(Refused::Unreadable(_))));
        // It says that it is empty.
        assert!(matches!(read(Path::new("/proc/self/status"), 5), Err(Refused::TooLong { length: 6, .. })));
    }
}
