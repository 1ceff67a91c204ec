// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Debian's QEMU for arm64, the monitor of KVM's guests that have disks and networks: the program and the libraries that it is linked with,
//! downloaded once into the cache as an ordinary user.

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
const PACKAGE: &str = "qemu-system-arm";
/// Where the program is in its package.
const PROGRAM: &str = "usr/bin/qemu-system-aarch64";
/// Where libraries are in theirs.
const LIBRARIES: [&str; 4] = ["usr/lib/aarch64-linux-gnu", "lib/aarch64-linux-gnu", "usr/lib", "lib"];

/// QEMU in the cache.
#[derive(Clone, Debug)]
pub struct Monitor {
    folder: PathBuf,
    /// The version of its authors, without Debian's: `10.0.13`.
    pub version: String,
    libraries: Vec<String>,
}

/// What is written beside the files.
#[derive(Debug, Serialize, Deserialize)]
struct Contents {
    package: String,
    libraries: Vec<String>,
}

impl Monitor {
    /// The files of an initramfs in which it runs: the program is `/bin/qemu`, and its libraries are where it looks for them.
    pub fn files(&self) -> Vec<(String, PathBuf)> {
        let library = |name: &String| (format!("lib/{name}"), self.folder.join("lib").join(name));
        let program = ("bin/qemu".to_owned(), self.folder.join("qemu"));
        std::iter::once(program).chain(self.libraries.iter().map(library)).collect()
    }
}

/// Returns QEMU, downloading it if it is not in the cache.
pub fn ensure(layout: &Layout) -> Result<Monitor> {
    let folder = layout.cache().join("debian").join(Isa::Arm64.debian()).join("peers/qemu");
    let _lock = Lock::take(&folder, "lock")?;
    if let Some(monitor) = cached(&folder) {
        return Ok(monitor);
    }
    fetch(&folder).map_err(|failure| failure.context_line("Debian's QEMU for arm64 cannot be fetched"))?;
    cached(&folder).ok_or_else(|| Failure::failed("Debian's QEMU is not where it was stored"))
}

fn cached(folder: &Path) -> Option<Monitor> {
    let text = fs::read_to_string(folder.join("contents.json")).ok()?;
    let Contents { package, libraries } = serde_json::from_str(&text).ok()?;
    let monitor = Monitor { folder: folder.to_path_buf(), version: upstream(&package)?, libraries };
    monitor.files().iter().all(|(_, file)| file.is_file()).then_some(monitor)
}

fn fetch(folder: &Path) -> Result<()> {
    let title = "fetching Debian's QEMU for arm64, a monitor for KVM".to_owned();
    let fetch = Fetch::begin(folder, title, Isa::Arm64, RELEASE)?;
    let files = fetch.download_with_dependencies("downloading it and what it needs", &[PACKAGE])?;
    let root = folder.join("unpacked");
    // What an interrupted run left is of unknown age.
    let _ = fs::remove_dir_all(&root);
    for file in &files {
        run(Command::new("dpkg-deb").arg("-x").arg(file).arg(&root))?;
    }
    let read = |file: &Path| fs::read(file).context(|| format!("cannot read {}", file.display()));
    let program = read(&root.join(PROGRAM))?;
    let libraries = closure(&program, |name| {
        let found = LIBRARIES.iter().map(|place| root.join(place).join(name)).find(|file| file.is_file());
        read(&found.ok_or_else(|| Failure::failed(format!("{PACKAGE} needs {name}, which no package has")))?)
    })?;
    write_atomically(&folder.join("qemu"), &program)?;
    for (name, bytes) in &libraries {
        write_atomically(&folder.join("lib").join(name), bytes)?;
    }
    let contents =
        Contents { package: file_name(find(&files, PACKAGE)?), libraries: libraries.into_keys().collect() };
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
