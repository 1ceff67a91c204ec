// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A file that is put aside when it is large: `one.log`, before it `one.log.1`, and so on.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{ErrorKind, Result, Write};
use std::path::{Path, PathBuf};

/// The name of an older file: 1 is the last one.
pub fn older(path: &Path, number: usize) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(format!(".{number}"));
    name.into()
}

/// Puts a file aside, and those before it; the oldest of more than `count` goes away.
pub fn put_aside(path: &Path, count: usize) -> Result<()> {
    let there = |result: Result<()>| match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        result => result,
    };
    if count == 0 {
        return there(fs::remove_file(path));
    }
    for number in (1..count).rev() {
        there(fs::rename(older(path, number), older(path, number + 1)))?;
    }
    there(fs::rename(path, older(path, 1)))
}

/// A file of lines that is put aside when it is large.
#[derive(Debug)]
pub struct Rotated {
    path: PathBuf,
    /// How large it gets, in bytes: one line may be more.
    size: u64,
    /// How many older ones are kept.
    count: usize,
    file: Option<File>,
    written: u64,
}

impl Rotated {
    /// Goes on with a file, or begins it.
    pub fn open(path: PathBuf, size: u64, count: usize) -> Result<Self> {
        let mut this = Rotated { path, size, count, file: None, written: 0 };
        this.reopen()?;
        Ok(this)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn reopen(&mut self) -> Result<()> {
        let file = File::options().create(true).append(true).open(&self.path)?;
        self.written = file.metadata()?.len();
        self.file = Some(file);
        Ok(())
    }

    /// Appends a line. If that fails, nothing of it is in the file.
    pub fn append(&mut self, line: &[u8]) -> Result<()> {
        if self.written > 0 && self.written + line.len() as u64 > self.size {
            put_aside(&self.path, self.count)?;
            self.file = None;
        }
        if self.file.is_none() {
            self.reopen()?;
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        match file.write_all(line) {
            Ok(()) => {
                self.written += line.len() as u64;
                Ok(())
            }
            Err(error) => {
                // A part of it may be there, on a disk that has become full.
                let _ = file.set_len(self.written);
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_put_aside_when_they_are_large() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("one.log");
        let mut log = Rotated::open(path.clone(), 10, 2).unwrap();
        for line in ["first\n", "second\n", "third\n", "a line that is longer\n", "x\n", "y\n"] {
            log.append(line.as_bytes()).unwrap();
        }
        let text = |path: &Path| fs::read_to_string(path).unwrap();
        assert_eq!(text(&path), "x\ny\n");
        assert_eq!(text(&older(&path, 1)), "a line that is longer\n");
        assert_eq!(text(&older(&path, 2)), "third\n");
        assert!(!older(&path, 3).exists());
        let mut log = Rotated::open(path.clone(), 10, 0).unwrap();
        log.append(b"z\n").unwrap();
        assert_eq!(text(&path), "x\ny\nz\n", "an old file goes on");
        log.append(b"123456789\n").unwrap();
        assert_eq!(
            (text(&path).as_str(), text(&older(&path, 1)).as_str()),
            ("123456789\n", "a line that is longer\n")
        );
    }
}
