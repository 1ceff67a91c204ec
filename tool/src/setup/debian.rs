// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The Debian guest: its kernel and busybox, downloaded once into the cache as an ordinary user.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::fetch::{self, Fetch, file_name};
use super::{Lock, initramfs, run};
use crate::failure::{Context, Failure, Result};
use crate::isa::Isa;
use crate::layout::{Layout, write_atomically};
use crate::ui;

/// The release that the guest comes from, whatever this machine runs: figures stay comparable.
pub(super) const RELEASE: &str = "bookworm";
const BUSYBOX: &str = "busybox-static";

/// The files of the guest that come from Debian.
const FILES: [&str; 2] = ["linux", "busybox"];

/// The kernel's drivers of disks, their usual file system and network devices, in the order in which they are loaded; what a kernel
/// has built in is no file.
const DRIVERS: [&str; 15] = [
    "drivers/virtio/virtio",
    "drivers/virtio/virtio_ring",
    "drivers/virtio/virtio_pci_legacy_dev",
    "drivers/virtio/virtio_pci_modern_dev",
    "drivers/virtio/virtio_pci",
    "drivers/block/virtio_blk",
    "lib/crc16",
    "crypto/crc32c_generic",
    "fs/mbcache",
    "fs/jbd2/jbd2",
    "fs/ext4/ext4",
    // systemd asks for it.
    "fs/autofs/autofs4",
    "net/core/failover",
    "drivers/net/net_failover",
    "drivers/net/virtio_net",
];

/// Those of entropy devices, likewise. Only VMs that have one load them.
const ENTROPY_DRIVERS: [&str; 2] = ["drivers/char/hw_random/rng-core", "drivers/char/hw_random/virtio-rng"];

/// That of devices behind MMIO, likewise. Only VMs whose devices are there load it.
const MMIO_DRIVERS: [&str; 1] = ["drivers/virtio/virtio_mmio"];

/// Those of virtio consoles, likewise.
const CONSOLE_DRIVERS: [&str; 1] = ["drivers/char/virtio_console"];

/// Those of balloons, likewise.
const BALLOON_DRIVERS: [&str; 1] = ["drivers/virtio/virtio_balloon"];

/// The folders of the cache with drivers, and which ones are in each. The first is every VM's with drivers.
const SETS: [(&str, &[&str]); 5] = [
    ("drivers", &DRIVERS),
    ("drivers-entropy", &ENTROPY_DRIVERS),
    ("drivers-mmio", &MMIO_DRIVERS),
    ("drivers-console", &CONSOLE_DRIVERS),
    ("drivers-balloon", &BALLOON_DRIVERS),
];

/// Which drivers a VM needs beside those of disks and network devices.
#[derive(Clone, Copy, Debug, Default)]
pub struct Drivers {
    /// Those of entropy devices.
    pub entropy: bool,
    /// That of devices behind MMIO.
    pub mmio: bool,
    /// Those of virtio consoles.
    pub console: bool,
    /// Those of balloons.
    pub balloon: bool,
}

impl Drivers {
    /// The folders of the cache with all that the VM needs.
    fn sets(self) -> Vec<(&'static str, &'static [&'static str])> {
        let wanted = SETS.into_iter().zip([true, self.entropy, self.mmio, self.console, self.balloon]);
        wanted.filter(|(_, wanted)| *wanted).map(|(set, _)| set).collect()
    }
}

/// Which of Debian's kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// The one for virtual machines, with few drivers.
    Cloud,
    /// The one for any machine.
    Standard,
    /// POWER's with pages of 4 KiB, where the usual one has 64 KiB.
    SmallPages,
}

impl Flavour {
    /// The package that always depends on the newest kernel of the release.
    fn meta(self, isa: Isa) -> String {
        match (self, isa) {
            // There is only one for any machine. Newer releases give this name to the one with small pages.
            (_, Isa::Power64) => "linux-image-powerpc64le".to_owned(),
            (Flavour::Cloud, _) => format!("linux-image-cloud-{}", isa.debian()),
            (Flavour::Standard | Flavour::SmallPages, _) => format!("linux-image-{}", isa.debian()),
        }
    }

    /// The release that it comes from.
    fn release(self) -> &'static str {
        match self {
            Flavour::Cloud | Flavour::Standard => RELEASE,
            Flavour::SmallPages => "bookworm-backports",
        }
    }
}

/// The files of the Debian guest.
#[derive(Clone, Debug)]
pub struct Debian {
    /// The kernel: a raw `Image` on arm64, a `bzImage` on a PC, a `vmlinux` on POWER.
    pub kernel: PathBuf,
    /// An initramfs with busybox.
    pub initrd: PathBuf,
    /// Which packages these are.
    pub versions: Versions,
}

/// The packages in the cache.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Versions {
    /// The kernel's package file.
    pub linux: String,
    /// Busybox's package file.
    pub busybox: String,
    /// The digests of the files in the cache, by their names: SHA-256, in hexadecimal.
    #[serde(default)]
    pub digests: BTreeMap<String, String>,
}

fn folder(layout: &Layout, isa: Isa, flavour: Flavour) -> PathBuf {
    let folder = layout.cache().join("debian").join(isa.debian());
    match flavour {
        Flavour::Cloud => folder,
        Flavour::Standard => folder.join("standard"),
        Flavour::SmallPages => folder.join("4k"),
    }
}

/// Returns the guest if it is in the cache; downloads nothing.
pub fn cached(layout: &Layout, isa: Isa, flavour: Flavour) -> Option<Debian> {
    let folder = folder(layout, isa, flavour);
    let versions = serde_json::from_str(&fs::read_to_string(folder.join("versions.json")).ok()?).ok()?;
    let debian = Debian { kernel: folder.join("linux"), initrd: folder.join("busybox.cpio"), versions };
    (debian.kernel.is_file() && folder.join("busybox").is_file()).then_some(debian)
}

/// The folder of drivers says which ones were looked for: a cache of an earlier version may have fewer.
const LIST: &str = "list";

/// Returns the initramfs of the guest with its kernel's drivers of disks and network devices, fetching what is not in the cache.
pub fn initrd_with_drivers(layout: &Layout, isa: Isa, flavour: Flavour) -> Result<Vec<u8>> {
    initrd_with(layout, isa, flavour, Drivers::default())
}

/// The same with further drivers.
pub fn initrd_with(layout: &Layout, isa: Isa, flavour: Flavour, more: Drivers) -> Result<Vec<u8>> {
    let debian = ensure(layout, isa, flavour)?;
    initramfs::with_drivers(&debian.initrd, &drivers_with(layout, isa, flavour, more)?)
}

/// Returns the drivers of the guest's kernel with names that sort as they are loaded, fetching what is not in the cache.
pub fn drivers(layout: &Layout, isa: Isa, flavour: Flavour) -> Result<Vec<(String, Vec<u8>)>> {
    drivers_with(layout, isa, flavour, Drivers::default())
}

fn drivers_with(
    layout: &Layout,
    isa: Isa,
    flavour: Flavour,
    more: Drivers,
) -> Result<Vec<(String, Vec<u8>)>> {
    let folder = folder(layout, isa, flavour);
    // Somebody else may be about to fetch them.
    let _lock = Lock::take(&folder, "lock")?;
    let sets = more.sets();
    let has = |(name, drivers): &(&str, &[&str])| {
        fs::read_to_string(folder.join(name).join(LIST)).ok() == Some(drivers.join("\n"))
    };
    if !sets.iter().all(has) {
        // The kernel in the cache may be older than what is there now.
        fetch_for(layout, isa, flavour)?;
    }
    let mut files = Vec::new();
    for (name, _) in &sets {
        files.extend(files_of(&folder.join(name))?);
    }
    Ok(files)
}

/// Reads the drivers in a folder of the cache, in the order of their names.
fn files_of(drivers: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(drivers).context(|| format!("cannot read {}", drivers.display()))?.flatten() {
        if entry.file_name() == LIST {
            continue;
        }
        let bytes = fs::read(entry.path()).context(|| format!("cannot read {}", entry.path().display()))?;
        files.push((entry.file_name().to_string_lossy().into_owned(), bytes));
    }
    files.sort();
    Ok(files)
}

/// Returns the guest, downloading it if it is not in the cache.
pub fn ensure(layout: &Layout, isa: Isa, flavour: Flavour) -> Result<Debian> {
    let folder = folder(layout, isa, flavour);
    let _lock = Lock::take(&folder, "lock")?;
    let present = cached(layout, isa, flavour);
    let damaged = present.as_ref().and_then(|present| damaged(&folder, &present.versions.digests));
    if let Some(file) = &damaged {
        ui::note(&format!("{} is damaged, and is fetched again", Layout::shown(file)));
    }
    let debian = match present {
        Some(debian) if damaged.is_none() => debian,
        _ => {
            fetch_for(layout, isa, flavour)?;
            cached(layout, isa, flavour)
                .ok_or_else(|| Failure::failed("the Debian guest is not where it was put"))?
        }
    };
    // The initramfs belongs to this tool, not to Debian: it is written anew when the tool changes.
    initramfs::write(&folder.join("busybox"), &debian.initrd)?;
    Ok(debian)
}

/// Fetches a guest into the cache, whose lock is taken.
fn fetch_for(layout: &Layout, isa: Isa, flavour: Flavour) -> Result<()> {
    // Its release has no busybox of its own.
    let usual = match flavour {
        Flavour::SmallPages => Some(ensure(layout, isa, Flavour::Cloud)?),
        Flavour::Cloud | Flavour::Standard => None,
    };
    fetch(&folder(layout, isa, flavour), isa, flavour, usual.as_ref()).map_err(|failure| {
        failure.context_line("the Debian guest (a Linux kernel and busybox) cannot be fetched")
    })
}

/// Finds a file in the cache that is not what was put there. Of a cache without digests nothing is known.
fn damaged(folder: &Path, digests: &BTreeMap<String, String>) -> Option<PathBuf> {
    let is_damaged = |file: &PathBuf, expected: &String| !digest(file).is_ok_and(|found| found == *expected);
    let mut files = digests.iter().map(|(name, expected)| (folder.join(name), expected));
    files.find(|(file, expected)| is_damaged(file, expected)).map(|(file, _)| file)
}

/// The SHA-256 of a file, in hexadecimal.
fn digest(file: &Path) -> Result<String> {
    let bytes = fs::read(file).context(|| format!("cannot read {}", file.display()))?;
    Ok(HEXLOWER.encode(&Sha256::digest(bytes)))
}

/// Fetches a kernel, and busybox unless that of the usual guest is taken.
fn fetch(folder: &Path, isa: Isa, flavour: Flavour, usual: Option<&Debian>) -> Result<()> {
    let title = format!("fetching Debian's {isa} kernel and busybox");
    let fetch = Fetch::begin(folder, title, isa, flavour.release())?;
    let kernel = fetch.apt.dependency(&flavour.meta(isa), "linux-image-")?;
    let wanted: Vec<&str> = match usual {
        Some(_) => vec![&kernel],
        None => vec![&kernel, BUSYBOX],
    };
    let files = fetch.download(format!("downloading {kernel}"), &wanted)?;
    let kernel_package = fetch::find(&files, &kernel)?;
    unpacked(kernel_package, |root| {
        take(root, kernel_file(isa), &folder.join("linux"))?;
        take_drivers(root, folder)
    })?;
    let busybox = folder.join("busybox");
    let busybox_package = match usual {
        Some(usual) => {
            let theirs = usual.kernel.with_file_name("busybox");
            fs::copy(&theirs, &busybox).context(|| format!("cannot copy {}", theirs.display()))?;
            usual.versions.busybox.clone()
        }
        None => {
            let package = fetch::find(&files, BUSYBOX)?;
            unpack(package, "bin/busybox", &busybox)?;
            file_name(package)
        }
    };
    let digests = FILES.into_iter().map(|name| Ok((name.to_owned(), digest(&folder.join(name))?)));
    let digests = digests.collect::<Result<_>>()?;
    let versions = Versions { linux: file_name(kernel_package), busybox: busybox_package, digests };
    let text = serde_json::to_string_pretty(&versions).context(|| "cannot describe the guest".into())?;
    write_atomically(&folder.join("versions.json"), text.as_bytes())?;
    fetch.done();
    Ok(())
}

/// How the path of the kernel begins in its package.
pub(super) const fn kernel_file(isa: Isa) -> &'static str {
    match isa {
        Isa::Arm64 | Isa::X86_64 => "boot/vmlinuz-",
        Isa::Power64 => "boot/vmlinux-",
    }
}

/// Takes the file whose path starts with `prefix` out of a package; of several the one with the shortest name, for
/// the others add a suffix to it.
pub(super) fn unpack(package: &Path, prefix: &str, to: &Path) -> Result<()> {
    let (Some(folder), Some(name)) = (to.parent(), to.file_name()) else {
        return Err(Failure::failed(format!("{} is not a file", to.display())));
    };
    unpack_all(package, &[(prefix, &*name.to_string_lossy())], folder)
}

/// Takes several files out of a package into a folder, each as [`unpack`] does. In the paths a folder `*` is the only
/// one in its place.
pub(super) fn unpack_all(package: &Path, files: &[(&str, &str)], into: &Path) -> Result<()> {
    unpacked(package, |root| files.iter().try_for_each(|(prefix, to)| take(root, prefix, &into.join(to))))
}

/// Unpacks a package for as long as its files are looked at.
fn unpacked(package: &Path, look: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let root = package.with_extension("unpacked");
    run(Command::new("dpkg-deb").arg("-x").arg(package).arg(&root))?;
    look(&root)?;
    fs::remove_dir_all(&root).context(|| format!("cannot remove {}", root.display()))
}

/// Takes a file out of an unpacked package.
fn take(root: &Path, prefix: &str, to: &Path) -> Result<()> {
    let file =
        find(root, prefix).ok_or_else(|| Failure::failed(format!("{} has no {prefix}", root.display())))?;
    let bytes = fs::read(&file).context(|| format!("cannot read {}", file.display()))?;
    write_atomically(to, &bytes)
}

/// Takes all drivers that are no part of the kernel itself out of its unpacked package, into the folders of the cache.
fn take_drivers(root: &Path, folder: &Path) -> Result<()> {
    let mut first = 0;
    for (name, drivers) in SETS {
        take_set(root, &folder.join(name), drivers, first)?;
        first += drivers.len();
    }
    Ok(())
}

/// Takes drivers into a folder. Their names say the order, from this number on.
fn take_set(root: &Path, into: &Path, drivers: &[&str], first: usize) -> Result<()> {
    let _ = fs::remove_dir_all(into);
    fs::create_dir_all(into).context(|| format!("cannot create {}", into.display()))?;
    for (index, driver) in (first..).zip(drivers) {
        // Newer kernels are where all programs are. Their modules are compressed, which their names say.
        let found = ["lib", "usr/lib"]
            .iter()
            .find_map(|lib| find(root, &format!("{lib}/modules/*/kernel/{driver}.ko")));
        if let Some(file) = found {
            let bytes = fs::read(&file).context(|| format!("cannot read {}", file.display()))?;
            write_atomically(&into.join(format!("{index:02}-{}", file_name(&file))), &bytes)?;
        }
    }
    write_atomically(&into.join(LIST), drivers.join("\n").as_bytes())
}

/// Finds the file whose path in an unpacked package starts with `prefix`.
fn find(root: &Path, prefix: &str) -> Option<PathBuf> {
    let (inside, start) = prefix.rsplit_once('/').unwrap_or(("", prefix));
    let mut folder = root.to_path_buf();
    for part in inside.split('/') {
        folder = match part {
            "*" => fs::read_dir(&folder).ok()?.flatten().next()?.path(),
            part => folder.join(part),
        };
    }
    let files = fs::read_dir(folder).ok()?.flatten();
    let files = files.filter(|entry| entry.file_name().to_string_lossy().starts_with(start));
    files.min_by_key(|entry| entry.file_name().len()).map(|entry| entry.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_files_of_the_cache_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("linux", "a kernel");
        write("busybox", "a shell");
        let digests: BTreeMap<String, String> =
            FILES.map(|name| (name.to_owned(), digest(&folder.path().join(name)).unwrap())).into();
        let found = || damaged(folder.path(), &digests).map(|file| file_name(&file));
        assert_eq!(found(), None);
        write("linux", "a kernal");
        assert_eq!(found().as_deref(), Some("linux"));
        write("linux", "a kernel");
        fs::remove_file(folder.path().join("busybox")).unwrap();
        assert_eq!(found().as_deref(), Some("busybox"));
        assert_eq!(damaged(folder.path(), &BTreeMap::new()), None, "a cache of an earlier version");
    }

    #[test]
    fn drivers_of_few_vms_are_apart_and_come_last() {
        let folder = tempfile::tempdir().unwrap();
        let (root, cache) = (folder.path().join("root"), folder.path().join("cache"));
        let drivers =
            ["virtio/virtio", "virtio/virtio_mmio", "char/hw_random/rng-core", "char/hw_random/virtio-rng"];
        for name in drivers.into_iter().chain(["char/virtio_console", "virtio/virtio_balloon"]) {
            let file = root.join(format!("lib/modules/6.1/kernel/drivers/{name}.ko"));
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, name).unwrap();
        }
        take_drivers(&root, &cache).unwrap();
        let names = |set: &str| {
            let files = files_of(&cache.join(set)).unwrap();
            files.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(names("drivers"), ["00-virtio.ko"]);
        assert_eq!(names("drivers-entropy"), ["15-rng-core.ko", "16-virtio-rng.ko"]);
        assert_eq!(names("drivers-mmio"), ["17-virtio_mmio.ko"]);
        assert_eq!(names("drivers-console"), ["18-virtio_console.ko"]);
        assert_eq!(names("drivers-balloon"), ["19-virtio_balloon.ko"]);
        let sets = |drivers: Drivers| drivers.sets().into_iter().map(|(name, _)| name);
        assert!(sets(Drivers::default()).eq(["drivers"]));
        assert!(sets(Drivers { mmio: true, ..Drivers::default() }).eq(["drivers", "drivers-mmio"]));
        assert!(sets(Drivers { balloon: true, ..Drivers::default() }).eq(["drivers", "drivers-balloon"]));
        let all = Drivers { entropy: true, mmio: true, console: true, balloon: true };
        assert!(sets(all).eq(SETS.map(|(name, _)| name)));
    }
}
