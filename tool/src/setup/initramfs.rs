// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes the initramfs of the Debian guest (busybox, the script `/init`, and a console device), and those of
//! hosts that run one program.
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
const INSTALL: &str = include_str!("guest/install");

/// Where an archive may begin behind another, in bytes.
const ALIGNMENT: usize = 4;

const DIRECTORY: u32 = 0o040755;
const PROGRAM: u32 = 0o100755;
const FILE: u32 = 0o100644;
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

/// The folders of a host whose files are programs and what is linked with them, and the one of what programs read.
const PROGRAMS: [&str; 3] = ["bin", "lib", "lib64"];
const SHARE: &str = "share";

/// An initramfs for a host that runs one program and what that starts: the program is `/init`. `files` are further ones
/// with their names; those in `modules/` are for the kernel, in the order in which it is to load them, and those in `bin/` and `lib/`
/// are programs.
pub fn host(program: &[u8], files: &[(String, Vec<u8>)]) -> Result<Vec<u8>> {
    let is_in = |folder: &str, name: &str| name.split_once('/').is_some_and(|(first, _)| first == folder);
    let build = || {
        let has = |folder: &&str| files.iter().any(|(name, _)| is_in(folder, name));
        let folders: Vec<&str> = ["dev", "modules", "proc", "sys"]
            .into_iter()
            .chain(PROGRAMS.into_iter().chain([SHARE]).filter(has))
            .collect();
        let mut archive = Archive::new(&folders)?;
        archive.entry("init", PROGRAM, None, program)?;
        for (name, content) in files {
            let mode = if PROGRAMS.iter().any(|folder| is_in(folder, name)) { PROGRAM } else { FILE };
            archive.entry(name, mode, None, content)?;
        }
        archive.finish()
    };
    build().context(|| "cannot build the initramfs".into())
}

/// The initramfs of the machine that finishes an image of Debian: which files have other owners than root, and drivers, which it
/// loads in the order of their names.
pub fn installer(busybox: Vec<u8>, owners: &str, drivers: Vec<(String, Vec<u8>)>) -> Result<Vec<u8>> {
    let mut files = vec![("bin/busybox".to_owned(), busybox), ("owners".to_owned(), owners.into())];
    files.extend(drivers.into_iter().map(|(name, bytes)| (format!("modules/{name}"), bytes)));
    host(INSTALL.as_bytes(), &files)
}

/// The initramfs in `file` with one more file, in an archive of its own behind it (Linux unpacks one after the other). What the
/// guest is told so, in as many bytes, leaves its boot as it is: a command line goes into its random numbers.
pub fn with_file(file: &Path, name: &str, content: &[u8]) -> Result<Vec<u8>> {
    with_entries(file, &[(name, FILE, content)])
}

/// The same with a program, `/bin/NAME`, and what it is told, `/NAME`.
pub fn with_program(file: &Path, name: &str, program: &[u8], told: &[u8]) -> Result<Vec<u8>> {
    with_entries(file, &[(&format!("bin/{name}"), PROGRAM, program), (name, FILE, told)])
}

/// The same with drivers, `/modules/NAME`, which the guest loads in the order of their names.
pub fn with_drivers(file: &Path, drivers: &[(String, Vec<u8>)]) -> Result<Vec<u8>> {
    let files: Vec<_> = drivers.iter().map(|(name, bytes)| (format!("modules/{name}"), bytes)).collect();
    let mut entries: Vec<(&str, u32, &[u8])> = vec![("modules", DIRECTORY, &[])];
    entries.extend(files.iter().map(|(name, bytes)| (name.as_str(), FILE, bytes.as_slice())));
    with_entries(file, &entries)
}

/// The same with a program that the kernel is to start first, `/first`, and drivers for that in a folder, with their whole names.
pub fn with_first(file: &Path, first: &str, folder: &str, drivers: &[(String, Vec<u8>)]) -> Result<Vec<u8>> {
    let mut entries: Vec<(&str, u32, &[u8])> =
        vec![("first", PROGRAM, first.as_bytes()), (folder, DIRECTORY, &[])];
    entries.extend(drivers.iter().map(|(name, bytes)| (name.as_str(), FILE, bytes.as_slice())));
    with_entries(file, &entries)
}

/// The initramfs in `file` with more files: names, modes, contents.
fn with_entries(file: &Path, entries: &[(&str, u32, &[u8])]) -> Result<Vec<u8>> {
    let mut bytes = fs::read(file).context(|| format!("cannot read {}", file.display()))?;
    bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
    let build = || {
        let mut archive = Archive { bytes, inode: 0 };
        for (name, mode, content) in entries {
            archive.entry(name, *mode, None, content)?;
        }
        archive.finish()
    };
    build().context(|| "cannot build the initramfs".into())
}

fn archive(busybox: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut archive = Archive::new(&["bin", "dev", "proc", "sys", "tmp"])?;
    archive.entry("bin/busybox", PROGRAM, None, busybox)?;
    archive.entry("init", PROGRAM, None, INIT.as_bytes())?;
    archive.finish()
}

/// An archive in the making.
struct Archive {
    bytes: Vec<u8>,
    inode: u32,
}

impl Archive {
    /// Begins with folders, and with the console: the kernel opens it for /init before anything can mount /dev.
    fn new(folders: &[&str]) -> std::io::Result<Self> {
        let mut archive = Archive { bytes: Vec::new(), inode: 0 };
        for folder in folders {
            archive.entry(folder, DIRECTORY, None, &[])?;
        }
        archive.entry("dev/console", CHARACTER_DEVICE, Some((5, 1)), &[])?;
        Ok(archive)
    }

    fn entry(
        &mut self,
        name: &str,
        mode: u32,
        device: Option<(u32, u32)>,
        content: &[u8],
    ) -> std::io::Result<()> {
        self.inode += 1;
        let mut builder = Builder::new(name).ino(self.inode).mode(mode).nlink(1);
        if let Some((major, minor)) = device {
            builder = builder.rdev_major(major).rdev_minor(minor);
        }
        let mut writer = builder.write(&mut self.bytes, u32::try_from(content.len()).unwrap_or(u32::MAX));
        writer.write_all(content)?;
        writer.finish().map(drop)
    }

    fn finish(mut self) -> std::io::Result<Vec<u8>> {
        trailer(&mut self.bytes)?;
        Ok(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    /// The entries of an archive: names, modes, contents.
    fn entries(bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut rest = bytes;
        let mut found = Vec::new();
        loop {
            let mut reader = cpio::newc::Reader::new(rest).unwrap();
            if reader.entry().is_trailer() {
                return found;
            }
            let mut content = Vec::new();
            reader.read_to_end(&mut content).unwrap();
            found.push((reader.entry().name().to_owned(), reader.entry().mode(), content));
            rest = reader.finish().unwrap();
        }
    }

    #[test]
    fn archive_reads_back() {
        let found = entries(&archive(b"not really busybox").unwrap());
        let names: Vec<&str> = found.iter().map(|entry| entry.0.as_str()).collect();
        assert_eq!(names, ["bin", "dev", "proc", "sys", "tmp", "dev/console", "bin/busybox", "init"]);
        assert_eq!(found[6].2, b"not really busybox");
        assert!(found[7].2.starts_with(b"#!/bin/busybox sh\n"), "the kernel runs /init by its first line");
        assert_eq!(found[7].1, PROGRAM);
    }

    #[test]
    fn a_file_is_added_in_an_archive_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("initramfs");
        // No multiple of four bytes.
        let mut first = archive(b"not really busybox").unwrap();
        first.push(0);
        fs::write(&file, &first).unwrap();
        let both = with_file(&file, "load", b"0100\n").unwrap();
        assert_eq!(both[..first.len()], first);
        let second = first.len().next_multiple_of(ALIGNMENT);
        let found = entries(&both[second..]);
        assert_eq!(found, [("load".to_owned(), FILE, b"0100\n".to_vec())]);
        let both = with_program(&file, "work", b"a program", b"its work").unwrap();
        let program = ("bin/work".to_owned(), PROGRAM, b"a program".to_vec());
        assert_eq!(entries(&both[second..]), [program, ("work".to_owned(), FILE, b"its work".to_vec())]);
        let both = with_drivers(&file, &[("0-blk.ko".to_owned(), b"a driver".to_vec())]).unwrap();
        let driver = ("modules/0-blk.ko".to_owned(), FILE, b"a driver".to_vec());
        assert_eq!(entries(&both[second..]), [("modules".to_owned(), DIRECTORY, Vec::new()), driver]);
        let both = with_first(&file, "a script", "f", &[("f/0-net.ko".to_owned(), b"n".to_vec())]).unwrap();
        let first = ("first".to_owned(), PROGRAM, b"a script".to_vec());
        let driver = ("f/0-net.ko".to_owned(), FILE, b"n".to_vec());
        assert_eq!(entries(&both[second..]), [first, ("f".to_owned(), DIRECTORY, Vec::new()), driver]);
    }

    #[test]
    fn a_host_has_its_program_and_its_guest() {
        let files = [("guest".to_owned(), b"guest's image".to_vec())];
        let found = entries(&host(b"monitor", &files).unwrap());
        let names: Vec<&str> = found.iter().map(|entry| entry.0.as_str()).collect();
        assert_eq!(names, ["dev", "modules", "proc", "sys", "dev/console", "init", "guest"]);
        assert_eq!((found[5].1, found[5].2.as_slice()), (PROGRAM, &b"monitor"[..]));
        assert_eq!(found[6].2, b"guest's image");
        assert_eq!(entries(&host(b"monitor", &[]).unwrap()).len(), 6);
        let others = ["bin/qemu", "lib/libc.so.6", "lib64/ld64.so.2", "share/vof.bin", "library"]
            .map(|name| (name.to_owned(), b"x".to_vec()));
        let found = entries(&host(b"monitor", &others).unwrap());
        let modes: Vec<_> = found.iter().skip(4).map(|entry| (entry.0.as_str(), entry.1)).collect();
        let folders = ["bin", "lib", "lib64", "share"].map(|name| (name, DIRECTORY));
        let programs = ["init", "bin/qemu", "lib/libc.so.6", "lib64/ld64.so.2"].map(|name| (name, PROGRAM));
        let files = ["share/vof.bin", "library"].map(|name| (name, FILE));
        let console = [("dev/console", CHARACTER_DEVICE)];
        assert_eq!(modes, [&folders[..], &console, &programs, &files].concat());
    }
}
