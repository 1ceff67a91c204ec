// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes the initramfs of the Debian guest: busybox, the script `/init`, and a console device.
//!
//! The archive is in the "newc" format of cpio, which Linux describes in
//! Documentation/driver-api/early-userspace/buffer-format.rst. Times and owners are zero, so that the same
//! inputs give the same bytes.

use std::fs;
use std::io::Write;
use std::path::Path;

use cpio::newc::{Builder, trailer};

use crate::failure::{Context, Result};

const INIT: &str = include_str!("guest/init");

const DIRECTORY: u32 = 0o040755;
const PROGRAM: u32 = 0o100755;
const CHARACTER_DEVICE: u32 = 0o020600;

/// Writes the initramfs with the given busybox to `file`, unless it is there already with the same bytes.
pub fn write(busybox: &Path, file: &Path) -> Result<()> {
    let program = fs::read(busybox).context(|| format!("cannot read {}", busybox.display()))?;
    let bytes = archive(&program).context(|| "cannot build the initramfs".into())?;
    if fs::read(file).is_ok_and(|present| present == bytes) {
        return Ok(());
    }
    crate::layout::write_atomically(file, &bytes)
}

fn archive(busybox: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(busybox.len() + 64 * 1024);
    let mut inode = 0;
    let mut entry = |name: &str, mode: u32, device: Option<(u32, u32)>, content: &[u8]| {
        inode += 1;
        let mut builder = Builder::new(name).ino(inode).mode(mode).nlink(1);
        if let Some((major, minor)) = device {
            builder = builder.rdev_major(major).rdev_minor(minor);
        }
        let mut writer = builder.write(&mut bytes, u32::try_from(content.len()).unwrap_or(u32::MAX));
        writer.write_all(content)?;
        writer.finish().map(drop)
    };
    for folder in ["bin", "dev", "proc", "sys", "tmp"] {
        entry(folder, DIRECTORY, None, &[])?;
    }
    // The kernel opens the console for /init before anything can mount /dev.
    entry("dev/console", CHARACTER_DEVICE, Some((5, 1)), &[])?;
    entry("bin/busybox", PROGRAM, None, busybox)?;
    entry("init", PROGRAM, None, INIT.as_bytes())?;
    trailer(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn archive_reads_back() {
        let bytes = archive(b"not really busybox").unwrap();
        let mut rest = bytes.as_slice();
        let mut found = Vec::new();
        loop {
            let mut reader = cpio::newc::Reader::new(rest).unwrap();
            if reader.entry().is_trailer() {
                break;
            }
            let mut content = Vec::new();
            reader.read_to_end(&mut content).unwrap();
            found.push((reader.entry().name().to_owned(), reader.entry().mode(), content));
            rest = reader.finish().unwrap();
        }
        let names: Vec<&str> = found.iter().map(|entry| entry.0.as_str()).collect();
        assert_eq!(names, ["bin", "dev", "proc", "sys", "tmp", "dev/console", "bin/busybox", "init"]);
        assert_eq!(found[6].2, b"not really busybox");
        assert!(found[7].2.starts_with(b"#!/bin/busybox sh\n"), "the kernel runs /init by its first line");
        assert_eq!(found[7].1, PROGRAM);
    }
}
