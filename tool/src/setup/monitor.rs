// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Debian's QEMU, the monitor of KVM's guests that have disks and networks: the program, the libraries that it is linked with and the firmware of its
//! machine, downloaded once into the cache as an ordinary user.

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

/// The release: fixed, whatever this machine runs, so that figures stay comparable.
const RELEASE: &str = "trixie";

/// What is taken out of Debian's packages.
struct Source {
    package: &'static str,
    /// Where the program is in its package.
    program: &'static str,
    /// Where libraries are in theirs, besides what all architectures have.
    libraries: [&'static str; 2],
    /// The loader of programs, where that is not among the libraries.
    loader: Option<&'static str>,
    /// Packages with firmware, and where it is in them.
    firmware: &'static [(&'static str, &'static str)],
}

/// Where all architectures have libraries.
const LIBRARIES: [&str; 2] = ["usr/lib", "lib"];

/// The `virt` machine boots a kernel without firmware.
const ARM64: Source = Source {
    package: "qemu-system-arm",
    program: "usr/bin/qemu-system-aarch64",
    libraries: ["usr/lib/aarch64-linux-gnu", "lib/aarch64-linux-gnu"],
    loader: None,
    firmware: &[],
};

/// A PC boots a kernel by its BIOS and an option ROM, and looks for another one for its local APIC.
const X86_64: Source = Source {
    package: "qemu-system-x86",
    program: "usr/bin/qemu-system-x86_64",
    libraries: ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"],
    loader: Some("lib64/ld-linux-x86-64.so.2"),
    firmware: &[
        ("seabios", "usr/share/seabios/bios-256k.bin"),
        ("qemu-system-data", "usr/share/qemu/linuxboot_dma.bin"),
        ("qemu-system-data", "usr/share/qemu/kvmvapic.bin"),
    ],
};

/// What is taken for a host of an architecture, if it has such guests.
fn source(isa: Isa) -> Result<&'static Source> {
    match isa {
        Isa::Arm64 => Ok(&ARM64),
        Isa::X86_64 => Ok(&X86_64),
        Isa::Power64 => Err(Failure::failed("QEMU is no monitor of guests on POWER here")),
    }
}

/// QEMU in the cache.
#[derive(Clone)]
pub struct Monitor {
    folder: PathBuf,
    /// The version of its authors, without Debian's: `10.0.13`.
    pub version: String,
    libraries: Vec<String>,
    source: &'static Source,
}

/// What is written beside the files.
#[derive(Debug, Serialize, Deserialize)]
struct Contents {
    package: String,
    libraries: Vec<String>,
}

impl Monitor {
    /// The files of an initramfs in which it runs: the program is `/bin/qemu`, its libraries are where it looks for them, and firmware is in `/share`.
    pub fn files(&self) -> Vec<(String, PathBuf)> {
        let library = |name: &String| (format!("lib/{name}"), self.folder.join("lib").join(name));
        let loader = |place: &&str| ((*place).to_owned(), self.folder.join("lib").join(base(place)));
        let firmware = |(_, place): &(&str, &str)| {
            (format!("share/{}", base(place)), self.folder.join("share").join(base(place)))
        };
        let program = ("bin/qemu".to_owned(), self.folder.join("qemu"));
        let libraries = self.libraries.iter().map(library);
        let Source { loader: place, firmware: all, .. } = self.source;
        std::iter::once(program)
            .chain(libraries)
            .chain(place.iter().map(loader))
            .chain(all.iter().map(firmware))
            .collect()
    }
}

/// The last part of a path.
fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Returns QEMU for hosts of an architecture, downloading it if it is not in the cache.
pub fn ensure(layout: &Layout, isa: Isa) -> Result<Monitor> {
    let source = source(isa)?;
    let folder = layout.cache().join("debian").join(isa.debian()).join("peers/qemu");
    let _lock = Lock::take(&folder, "lock")?;
    if let Some(monitor) = cached(&folder, source) {
        return Ok(monitor);
    }
    let what = format!("Debian's QEMU for {isa} cannot be fetched");
    fetch(&folder, isa, source).map_err(|failure| failure.context_line(&what))?;
    cached(&folder, source).ok_or_else(|| Failure::failed("Debian's QEMU is not where it was stored"))
}

fn cached(folder: &Path, source: &'static Source) -> Option<Monitor> {
    let text = fs::read_to_string(folder.join("contents.json")).ok()?;
    let Contents { package, libraries } = serde_json::from_str(&text).ok()?;
    let monitor = Monitor { folder: folder.to_path_buf(), version: upstream(&package)?, libraries, source };
    monitor.files().iter().all(|(_, file)| file.is_file()).then_some(monitor)
}

fn fetch(folder: &Path, isa: Isa, source: &Source) -> Result<()> {
    let Source { package, program, libraries, firmware, .. } = source;
    let fetch =
        Fetch::begin(folder, format!("fetching Debian's QEMU for {isa}, a monitor for KVM"), isa, RELEASE)?;
    let wanted: Vec<&str> = std::iter::once(*package).chain(firmware.iter().map(|(name, _)| *name)).collect();
    let files = fetch.download_with_dependencies("downloading it and what it needs", &wanted)?;
    let root = folder.join("unpacked");
    // What an interrupted run left is of unknown age.
    let _ = fs::remove_dir_all(&root);
    for file in &files {
        run(Command::new("dpkg-deb").arg("-x").arg(file).arg(&root))?;
    }
    let read = |file: &Path| fs::read(file).context(|| format!("cannot read {}", file.display()));
    let program = read(&root.join(program))?;
    let libraries = closure(&program, |name| {
        let places = libraries.iter().chain(&LIBRARIES).map(|place| root.join(place).join(name));
        let found = places.into_iter().find(|file| file.is_file());
        read(&found.ok_or_else(|| Failure::failed(format!("{package} needs {name}, which no package has")))?)
    })?;
    write_atomically(&folder.join("qemu"), &program)?;
    for (name, bytes) in &libraries {
        write_atomically(&folder.join("lib").join(name), bytes)?;
    }
    for (_, place) in *firmware {
        write_atomically(&folder.join("share").join(base(place)), &read(&root.join(place))?)?;
    }
    let contents =
        Contents { package: file_name(find(&files, package)?), libraries: libraries.into_keys().collect() };
    let text = serde_json::to_string_pretty(&contents).context(|| "cannot describe QEMU".into())?;
    write_atomically(&folder.join("contents.json"), text.as_bytes())?;
    fs::remove_dir_all(&root).context(|| format!("cannot remove {}", root.display()))?;
    fetch.done();
    Ok(())
}

/// The libraries that a program needs, and those that they need, by name; `look` finds one.
fn closure(program: &[u8], look: impl Fn(&str) -> Result<Vec<u8>>) -> Result<BTreeMap<String, Vec<u8>>> {
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
