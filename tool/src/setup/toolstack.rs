// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What Xen's first domain needs to start guests that have devices: Debian's Linux with the back ends and the front ends, and Xen's
//! programs with the libraries that they are linked with, downloaded once into the cache as an ordinary user.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use super::fetch::{Fetch, file_name, find};
use super::monitor::closure;
use super::peers::upstream;
use super::{Lock, debian, run};
use crate::failure::{Context, Failure, Result};
use crate::isa::Isa;
use crate::layout::{Layout, write_atomically};

/// The release: that of Xen.
const RELEASE: &str = "bookworm";
/// The package that depends on the newest kernel: the common one, which has back ends, front ends and RAM disks as modules.
const KERNEL: &str = "linux-image-arm64";
/// The package that depends on the newest Xen, and how that one's begins and ends around its version.
const XEN: (&str, &str, &str) = ("xen-system-arm64", "xen-hypervisor-", "-arm64");
/// The package with the programs, in front of that version.
const PROGRAMS_PACKAGE: &str = "xen-utils-";
/// The package with XenStore's program for scripts.
const STORE_PACKAGE: &str = "xenstore-utils";
/// The programs in its folder in that package, and the other one's.
const PROGRAMS: [&str; 4] = ["xl", "xenstored", "xenconsoled", "xen-init-dom0"];
const STORE: &str = "usr/bin/xenstore-write";
/// The name of Xen's program for scripts in an initramfs.
const STORE_NAME: &str = "xenstore-write";
/// A library that the C library loads by itself, when a thread is cancelled.
const UNWINDER: &str = "libgcc_s.so.1";
/// The folders of libraries.
const LIBRARIES: [&str; 4] = ["usr/lib/aarch64-linux-gnu", "lib/aarch64-linux-gnu", "usr/lib", "lib"];

/// The kernel's modules that any first domain needs, in the order in which they are loaded.
const BASE: [&str; 4] = [
    "drivers/xen/xen-privcmd",
    "drivers/xen/xen-evtchn",
    "drivers/xen/xen-gntdev",
    "drivers/xen/xenfs/xenfs",
];
/// Those of a first domain, and of a guest, with disks.
const DISKS: [&[&str]; 2] =
    [&["drivers/block/brd", "drivers/block/xen-blkback/xen-blkback"], &["drivers/block/xen-blkfront"]];
/// Those with networks.
const NETWORKS: [&[&str]; 2] = [
    &["net/llc/llc", "net/802/stp", "net/bridge/bridge", "drivers/net/xen-netback/xen-netback"],
    &["drivers/net/xen-netfront"],
];

/// The devices of guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Devices {
    /// Disks.
    Disks,
    /// Networks.
    Networks,
}

impl Devices {
    /// The modules of back ends and of front ends.
    fn modules(self) -> [&'static [&'static str]; 2] {
        match self {
            Devices::Disks => DISKS,
            Devices::Networks => NETWORKS,
        }
    }
}

/// All of it in the cache.
#[derive(Clone, Debug)]
pub struct Toolstack {
    folder: PathBuf,
    libraries: Vec<String>,
    /// The version of the kernel's authors: `6.1.176`.
    pub linux: String,
}

/// What is written beside the files.
#[derive(Debug, Serialize, Deserialize)]
struct Contents {
    kernel: String,
    libraries: Vec<String>,
}

impl Toolstack {
    /// The kernel of the first domain and of guests.
    pub fn kernel(&self) -> PathBuf {
        self.folder.join("linux")
    }

    /// The programs and their libraries, with their names in an initramfs.
    pub fn programs(&self) -> Vec<(String, PathBuf)> {
        let program = |name: &str| (format!("bin/{name}"), self.folder.join("bin").join(name));
        let library = |name: &String| (format!("lib/{name}"), self.folder.join("lib").join(name));
        let programs = PROGRAMS.into_iter().chain([STORE_NAME]).map(program);
        programs.chain(self.libraries.iter().map(library)).collect()
    }

    /// The modules of a first domain whose guests have such devices, in the order in which they are loaded.
    pub fn back_ends(&self, devices: Devices) -> Vec<PathBuf> {
        BASE.iter().chain(devices.modules()[0]).map(|module| self.module(module)).collect()
    }

    /// The modules of such a guest, likewise.
    pub fn front_ends(&self, devices: Devices) -> Vec<PathBuf> {
        devices.modules()[1].iter().map(|module| self.module(module)).collect()
    }

    fn module(&self, path: &str) -> PathBuf {
        self.folder.join(stored(path))
    }
}

/// All modules.
fn modules() -> impl Iterator<Item = &'static str> {
    let devices = [DISKS, NETWORKS].into_iter().flatten().flatten().copied();
    BASE.into_iter().chain(devices)
}

/// Where a module is in the cache.
fn stored(path: &str) -> String {
    format!("modules/{}.ko", path.rsplit('/').next().unwrap_or(path))
}

/// Returns all of it, downloading it if it is not in the cache.
pub fn ensure(layout: &Layout) -> Result<Toolstack> {
    let folder = layout.cache().join("debian").join(Isa::Arm64.debian()).join("peers/xen-toolstack");
    let _lock = Lock::take(&folder, "lock")?;
    if let Some(toolstack) = cached(&folder) {
        return Ok(toolstack);
    }
    fetch(&folder)
        .map_err(|failure| failure.context_line("what Xen's first domain needs cannot be fetched"))?;
    cached(&folder).ok_or_else(|| Failure::failed("what Xen's first domain needs is not where it was stored"))
}

fn cached(folder: &Path) -> Option<Toolstack> {
    let text = fs::read_to_string(folder.join("contents.json")).ok()?;
    let Contents { kernel, libraries } = serde_json::from_str(&text).ok()?;
    let toolstack = Toolstack { folder: folder.to_path_buf(), libraries, linux: upstream(&kernel)? };
    let programs = toolstack.programs().into_iter().map(|(_, file)| file);
    let mut all = programs.chain(modules().map(|path| toolstack.module(path))).chain([toolstack.kernel()]);
    all.all(|file| file.is_file()).then_some(toolstack)
}

fn fetch(folder: &Path) -> Result<()> {
    let fetch =
        Fetch::begin(folder, "fetching what Xen's first domain needs".to_owned(), Isa::Arm64, RELEASE)?;
    let kernel = fetch.apt.dependency(KERNEL, "linux-image-")?;
    let (meta, prefix, suffix) = XEN;
    let hypervisor = fetch.apt.dependency(meta, prefix)?;
    let version = hypervisor.trim_start_matches(prefix).trim_end_matches(suffix);
    let files = fetch.download(format!("downloading {kernel}"), &[&kernel])?;
    let kernel = find(&files, &kernel)?;
    let parts: Vec<_> =
        modules().map(|path| (format!("lib/modules/*/kernel/{path}.ko"), stored(path))).collect();
    let parts = parts.iter().map(|(from, to)| (from.as_str(), to.as_str()));
    debian::unpack_all(kernel, &parts.chain([("boot/vmlinuz-", "linux")]).collect::<Vec<_>>(), folder)?;
    let programs = format!("{PROGRAMS_PACKAGE}{version}");
    let packages = fetch.download_with_dependencies(
        "downloading Xen's programs and what they need",
        &[&programs, STORE_PACKAGE],
    )?;
    let root = folder.join("unpacked");
    // What an interrupted run left is of unknown age.
    let _ = fs::remove_dir_all(&root);
    for package in &packages {
        run(Command::new("dpkg-deb").arg("-x").arg(package).arg(&root))?;
    }
    let libraries = store(folder, &root, version)?;
    fs::remove_dir_all(&root).context(|| format!("cannot remove {}", root.display()))?;
    let contents = Contents { kernel: file_name(kernel), libraries };
    let text =
        serde_json::to_string_pretty(&contents).context(|| "cannot describe the first domain".into())?;
    write_atomically(&folder.join("contents.json"), text.as_bytes())?;
    fetch.done();
    Ok(())
}

/// Stores the programs of the unpacked packages with their libraries, and returns the names of these.
fn store(folder: &Path, root: &Path, version: &str) -> Result<Vec<String>> {
    let read = |file: &Path| fs::read(file).context(|| format!("cannot read {}", file.display()));
    let look =
        |name: &str| {
            let found = LIBRARIES.iter().map(|place| root.join(place).join(name)).find(|file| file.is_file());
            read(&found.ok_or_else(|| {
                Failure::failed(format!("Xen's programs need {name}, which no package has"))
            })?)
        };
    let mut libraries = BTreeMap::from([(UNWINDER.to_owned(), look(UNWINDER)?)]);
    let own = |name| (name, format!("usr/lib/xen-{version}/bin/{name}"));
    for (name, path) in PROGRAMS.map(own).into_iter().chain([(STORE_NAME, STORE.to_owned())]) {
        let program = read(&root.join(path))?;
        libraries.extend(closure(&program, look)?);
        write_atomically(&folder.join("bin").join(name), &program)?;
    }
    for (name, bytes) in &libraries {
        write_atomically(&folder.join("lib").join(name), bytes)?;
    }
    Ok(libraries.into_keys().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_has_the_modules_of_its_devices() {
        let toolstack =
            Toolstack { folder: "t".into(), libraries: vec!["libc.so.6".into()], linux: "6".into() };
        let names = |files: Vec<PathBuf>| files.iter().map(|file| file_name(file)).collect::<Vec<_>>();
        let disks = names(toolstack.back_ends(Devices::Disks));
        assert_eq!(disks[4..], ["brd.ko", "xen-blkback.ko"]);
        assert_eq!(names(toolstack.front_ends(Devices::Networks)), ["xen-netfront.ko"]);
        let programs = toolstack.programs();
        assert!(programs.contains(&("bin/xenstore-write".into(), "t/bin/xenstore-write".into())));
        assert!(programs.contains(&("lib/libc.so.6".into(), "t/lib/libc.so.6".into())));
    }

    #[test]
    fn modules_have_names_of_their_own() {
        let mut names: Vec<String> = modules().map(stored).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
