// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Debian's QEMU, the monitor of KVM's guests that have disks and networks: the program, the libraries that it is linked with, and the
//! firmware of its guests, downloaded once into the cache as an ordinary user.

use std::collections::VecDeque;
use std::collections::btree_map::{BTreeMap, Entry};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::Endianness;
use object::elf::{DT_NEEDED, FileHeader64};
use object::read::elf::{Dyn, FileHeader};
use serde::{Deserialize, Serialize};

use super::fetch::{Fetch, file_name, find};
use super::peers::upstream;
use super::{Lock, run};
use crate::failure::{Context, Failure, Result};
use crate::isa::Isa;
use crate::layout::{Layout, write_atomically};

/// The package with the firmware of guests.
const FIRMWARE_PACKAGE: &str = "qemu-system-data";
/// Where firmware is in its package.
const FIRMWARE_FOLDER: &str = "usr/share/qemu";

/// What QEMU is on an architecture.
struct Parts {
    /// The release: fixed, whatever this machine runs, so that figures stay comparable.
    release: &'static str,
    /// The release upon which that is made, if it has not all of its packages itself.
    base: Option<&'static str>,
    /// The package.
    package: &'static str,
    /// The program in it.
    program: &'static str,
    /// The folder of libraries that packages for the architecture have.
    libraries: &'static str,
    /// Where the kernel looks for the program that loads libraries, if not among them.
    loader: Option<&'static str>,
    /// The firmware that a guest needs.
    firmware: &'static [&'static str],
}

impl Parts {
    fn of(isa: Isa) -> Self {
        match isa {
            Isa::Arm64 => Self {
                release: "trixie",
                base: None,
                package: "qemu-system-arm",
                program: "usr/bin/qemu-system-aarch64",
                libraries: "aarch64-linux-gnu",
                loader: None,
                firmware: &[],
            },
            Isa::Power64 => Self {
                release: "bookworm-backports",
                base: Some("bookworm"),
                package: "qemu-system-ppc",
                program: "usr/bin/qemu-system-ppc64",
                libraries: "powerpc64le-linux-gnu",
                loader: Some("lib64/ld64.so.2"),
                firmware: &["vof.bin"],
            },
            Isa::X86_64 => Self {
                release: "trixie",
                base: None,
                package: "qemu-system-x86",
                program: "usr/bin/qemu-system-x86_64",
                libraries: "x86_64-linux-gnu",
                loader: Some("lib64/ld-linux-x86-64.so.2"),
                firmware: &["bios-256k.bin", "kvmvapic.bin", "linuxboot_dma.bin"],
            },
        }
    }
}

/// QEMU in the cache.
#[derive(Clone, Debug)]
pub struct Monitor {
    folder: PathBuf,
    /// The version of its authors, without Debian's: `10.0.13`.
    pub version: String,
    libraries: Vec<String>,
    loader: Option<&'static str>,
    firmware: &'static [&'static str],
}

/// What is written beside the files.
#[derive(Debug, Serialize, Deserialize)]
struct Contents {
    package: String,
    libraries: Vec<String>,
}

impl Monitor {
    /// Where it finds the firmware of guests.
    pub const SHARE: &str = "share";

    /// The files of an initramfs in which it runs: the program is `/bin/qemu`, and its libraries are where it looks for them.
    pub fn files(&self) -> Vec<(String, PathBuf)> {
        let program = ("bin/qemu".to_owned(), self.folder.join("qemu"));
        let library = |name: &String| (format!("lib/{name}"), self.folder.join("lib").join(name));
        let loader = |path: &str| {
            let name = path.rsplit('/').next().unwrap_or(path);
            (path.to_owned(), self.folder.join("lib").join(name))
        };
        let firmware = |name: &&str| {
            let name = format!("{}/{name}", Self::SHARE);
            let file = self.folder.join(&name);
            (name, file)
        };
        let more = self.loader.into_iter().map(loader).chain(self.firmware.iter().map(firmware));
        std::iter::once(program).chain(self.libraries.iter().map(library)).chain(more).collect()
    }
}

/// Returns QEMU, downloading it if it is not in the cache.
pub fn ensure(layout: &Layout, isa: Isa) -> Result<Monitor> {
    let folder = layout.cache().join("debian").join(isa.debian()).join("peers/qemu");
    let parts = Parts::of(isa);
    let _lock = Lock::take(&folder, "lock")?;
    if let Some(monitor) = cached(&folder, &parts) {
        return Ok(monitor);
    }
    fetch(&folder, isa, &parts).map_err(|failure| {
        failure.context_line(&format!("Debian's QEMU for {} cannot be fetched", isa.debian()))
    })?;
    cached(&folder, &parts).ok_or_else(|| Failure::failed("Debian's QEMU is not where it was stored"))
}

fn cached(folder: &Path, parts: &Parts) -> Option<Monitor> {
    let text = fs::read_to_string(folder.join("contents.json")).ok()?;
    let Contents { package, libraries } = serde_json::from_str(&text).ok()?;
    let &Parts { loader, firmware, .. } = parts;
    let version = upstream(&package)?;
    let monitor = Monitor { folder: folder.to_path_buf(), version, libraries, loader, firmware };
    monitor.files().iter().all(|(_, file)| file.is_file()).then_some(monitor)
}

fn fetch(folder: &Path, isa: Isa, parts: &Parts) -> Result<()> {
    let title = format!("fetching Debian's QEMU for {}, a monitor for KVM", isa.debian());
    let fetch = Fetch::begin_upon(folder, title, isa, parts.release, parts.base)?;
    let files = fetch
        .download_with_dependencies("downloading it and what it needs", &[parts.package, FIRMWARE_PACKAGE])?;
    let root = folder.join("unpacked");
    // What an interrupted run left is of unknown age.
    let _ = fs::remove_dir_all(&root);
    for file in &files {
        run(Command::new("dpkg-deb").arg("-x").arg(file).arg(&root))?;
    }
    let package = file_name(find(&files, parts.package)?);
    store(folder, &root, parts, package)?;
    fs::remove_dir_all(&root).context(|| format!("cannot remove {}", root.display()))?;
    fetch.done();
    Ok(())
}

/// Stores what is needed of the unpacked packages.
fn store(folder: &Path, root: &Path, parts: &Parts, package: String) -> Result<()> {
    let read = |file: &Path| fs::read(file).context(|| format!("cannot read {}", file.display()));
    let program = read(&root.join(parts.program))?;
    let own = ["usr/lib", "lib"].map(|place| format!("{place}/{}", parts.libraries));
    let places = [&own[0], &own[1], "usr/lib", "lib"];
    let libraries = closure(&program, |name| {
        let found = places.iter().map(|place| root.join(place).join(name)).find(|file| file.is_file());
        read(&found.ok_or_else(|| {
            Failure::failed(format!("{} needs {name}, which no package has", parts.package))
        })?)
    })?;
    write_atomically(&folder.join("qemu"), &program)?;
    for (name, bytes) in &libraries {
        write_atomically(&folder.join("lib").join(name), bytes)?;
    }
    for name in parts.firmware {
        let bytes = read(&root.join(FIRMWARE_FOLDER).join(name))?;
        write_atomically(&folder.join(Monitor::SHARE).join(name), &bytes)?;
    }
    let contents = Contents { package, libraries: libraries.into_keys().collect() };
    let text = serde_json::to_string_pretty(&contents).context(|| "cannot describe QEMU".into())?;
    write_atomically(&folder.join("contents.json"), text.as_bytes())
}

/// The libraries that a program needs, and those that they need, by name; `look` finds one.
pub(super) fn closure(
    program: &[u8],
    look: impl Fn(&str) -> Result<Vec<u8>>,
) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut all = BTreeMap::new();
    let mut wanted = VecDeque::from(needed(program)?);
    while let Some(name) = wanted.pop_front() {
        if let Entry::Vacant(new) = all.entry(name) {
            let library = look(new.key())?;
            wanted.extend(needed(&library)?);
            new.insert(library);
        }
    }
    Ok(all)
}

/// The names of the libraries that an ELF file says it needs.
fn needed(file: &[u8]) -> Result<Vec<String>> {
    let names = || -> object::Result<Vec<String>> {
        let header = FileHeader64::<Endianness>::parse(file)?;
        let endian = header.endian()?;
        let sections = header.sections(endian, file)?;
        let Some((entries, strings)) = sections.dynamic(endian, file)? else { return Ok(Vec::new()) };
        let strings = sections.strings(endian, file, strings)?;
        let entries = entries.iter().filter(|entry| entry.tag(endian) == DT_NEEDED);
        let names = entries.map(|entry| entry.string(endian, strings));
        names.map(|name| Ok(String::from_utf8_lossy(name?).into_owned())).collect()
    };
    names().map_err(|error| Failure::failed(format!("a program of Debian's is no ELF file: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_needs_a_c_library() {
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(needed(&own).unwrap().iter().any(|name| name.starts_with("libc.so")));
        assert!(needed(b"#!/bin/sh").is_err());
    }

    #[test]
    fn the_loader_and_firmware_are_where_they_are_looked_for() {
        let Parts { loader, firmware, .. } = Parts::of(Isa::Power64);
        let libraries = vec!["ld64.so.2".to_owned()];
        let folder = PathBuf::from("q");
        let files = Monitor { folder, version: "1".to_owned(), libraries, loader, firmware }.files();
        let files: Vec<_> =
            files.iter().map(|(name, file)| (name.as_str(), file.to_str().unwrap())).collect();
        let expected = [
            ("bin/qemu", "q/qemu"),
            ("lib/ld64.so.2", "q/lib/ld64.so.2"),
            ("lib64/ld64.so.2", "q/lib/ld64.so.2"),
            ("share/vof.bin", "q/share/vof.bin"),
        ];
        assert_eq!(files, expected);
    }

    #[test]
    fn each_library_is_looked_for_once() {
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        let looked = std::cell::RefCell::new(Vec::new());
        // Each library is said to need the same as the program.
        let all = closure(&own, |name| {
            looked.borrow_mut().push(name.to_owned());
            Ok(own.clone())
        });
        let mut names: Vec<String> = all.unwrap().into_keys().collect();
        looked.borrow_mut().sort();
        names.sort();
        assert_eq!(*looked.borrow(), names);
        let missing = closure(&own, |name| Err(Failure::failed(format!("no {name}"))));
        assert!(missing.unwrap_err().to_string().starts_with("no lib"));
    }
}
