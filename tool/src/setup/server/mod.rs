// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The image `debian:server`: a small Debian with systemd and apt on an ext4 file system, made once for the cache of Debian's
//! packages, as an ordinary user.
//!
//! The tool unpacks the packages into a folder and describes them to dpkg as unpacked; mke2fs makes the file system of that folder.
//! Their scripts are programs of the guest's architecture and want to be root, so they run in an emulated machine of it, with
//! Debian's kernel (`../guest/install`).

mod database;
mod finish;
mod tree;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use self::database::Database;
use self::tree::Tree;
use super::fetch::{Fetch, file_name};
use super::packages::Program;
use super::{Lock, debian, find_program, run, space};
use crate::failure::{Context, Result};
use crate::isa::Isa;
use crate::layout::{Layout, write_atomically};
use crate::ui;

/// What is installed beside what each Debian must have: apt would take all of Perl to merge folders that are made merged.
const PACKAGES: [&str; 9] = [
    "apt",
    "usr-is-merged",
    "systemd-sysv",
    // Names, where DHCP says who knows them.
    "systemd-resolved",
    "udev",
    "dbus",
    "iproute2",
    "iputils-ping",
    "nano",
];
/// What the image's own mirror has to install, with what it needs.
const MIRRORED: [&str; 3] = ["hello", "netcat-openbsd", "lsof"];
/// Where the mirror is in the image.
const MIRROR: &str = "srv/mirror";
/// What says how the image is made: another one is made anew.
const RECIPE: u32 = 2;
/// What making it takes on the disk beside the download, in bytes: the folder and the file system.
const ROOM: u64 = 1 << 30;
/// What the file system has room for beside its files, in bytes: what dpkg writes, and some packages more.
const SPARE: u64 = 96 << 20;
/// The label of the file system.
const LABEL: &str = "debian";

/// Files of no package, with what is in them.
const FILES: [(&str, &str); 7] = [
    // The file system grows with the disk.
    ("etc/fstab", "LABEL=debian / ext4 defaults,x-systemd.growfs 0 0\n"),
    ("etc/hostname", "debian\n"),
    ("etc/hosts", "127.0.0.1 localhost debian\n::1 localhost\n"),
    // It has no translations of what packages are.
    ("etc/apt/apt.conf.d/mirror", "Acquire::Languages \"none\";\n"),
    ("etc/apt/sources.list", "deb [trusted=yes] file:/srv/mirror ./\n"),
    ("etc/dpkg/dpkg.cfg.d/small", tree::EXCLUDED),
    ("etc/issue.d/turnstile.issue", "Log in as root, with the password turnstile.\n\n"),
];

const MKE2FS: Program = Program { name: "mke2fs", packages: &["e2fsprogs"] };

/// What is written beside the image.
#[derive(Debug, Serialize, Deserialize)]
struct Made {
    /// [`RECIPE`].
    recipe: u32,
    /// The bytes of the image.
    length: u64,
    /// The files of its packages.
    packages: Vec<String>,
}

fn folder(layout: &Layout, isa: Isa) -> PathBuf {
    layout.cache().join("debian").join(isa.debian()).join("server")
}

/// Returns the image if it is in the cache; makes nothing.
pub fn cached(layout: &Layout, isa: Isa) -> Option<PathBuf> {
    cached_in(&folder(layout, isa))
}

fn cached_in(folder: &Path) -> Option<PathBuf> {
    let made: Made = serde_json::from_str(&fs::read_to_string(folder.join("made.json")).ok()?).ok()?;
    let image = folder.join("disk.img");
    let is_whole = fs::metadata(&image).is_ok_and(|file| file.len() == made.length);
    (made.recipe == RECIPE && is_whole).then_some(image)
}

/// Returns the image, making it if it is not in the cache: this takes minutes.
pub fn ensure(layout: &Layout, isa: Isa) -> Result<PathBuf> {
    let folder = folder(layout, isa);
    let _lock = Lock::take(&folder, "lock")?;
    if let Some(image) = cached(layout, isa) {
        return Ok(image);
    }
    make(layout, isa, &folder)
        .map_err(|failure| failure.context_line("the image debian:server cannot be made"))
}

/// Makes the image in its folder, whose lock is taken.
fn make(layout: &Layout, isa: Isa, folder: &Path) -> Result<PathBuf> {
    // What an interrupted attempt left takes the room that this one needs.
    for name in ["apt", "root", "disk.new", "install.cpio"] {
        remove(&folder.join(name))?;
    }
    space::ensure_at(folder, ROOM)?;
    let mke2fs = MKE2FS.ensure(layout, find_mke2fs)?;
    // What is missing for the last step is asked for before the first.
    let machine = finish::Machine::ensure(layout, isa)?;
    ui::note(&format!("making the image debian:server for {isa}, once: this takes some minutes"));
    let root = folder.join("root");
    let title = format!("fetching Debian's packages of a server for {isa}");
    let fetch = Fetch::begin(folder, title, isa, debian::RELEASE)?;
    let base: Vec<&str> = ["?essential", "?priority(required)"].into_iter().chain(PACKAGES).collect();
    let installed = fetch.download_with_dependencies("downloading the system", &base)?;
    let all: Vec<&str> = base.into_iter().chain(MIRRORED).collect();
    let mut mirrored = fetch.download_with_dependencies("downloading the mirror", &all)?;
    mirrored.retain(|file| !installed.contains(file));
    let owners = lay_out(&root, isa, &installed, &mirrored)?;
    fetch.done();
    let step = ui::Step::start(format!("making a file system for {isa}"));
    let image = folder.join("disk.new");
    let length = (tree::in_file_system(&root) + SPARE).next_multiple_of(4 << 20);
    run(Command::new(mke2fs)
        .args(["-q", "-t", "ext4", "-b", "4096", "-L", LABEL, "-d"])
        .args([&root, &image])
        .arg(format!("{}k", length >> 10)))?;
    remove(&root)?;
    step.done();
    machine.finish(folder, &image, &owners)?;
    let packages = installed.iter().map(|file| file_name(file)).collect();
    let made = Made { recipe: RECIPE, length, packages };
    let text = serde_json::to_string_pretty(&made).context(|| "cannot describe the image".into())?;
    let file = folder.join("disk.img");
    // Its length is that of a whole one from the beginning.
    fs::File::open(&image)
        .and_then(|image| image.sync_all())
        .context(|| format!("cannot write {}", file.display()))?;
    fs::rename(&image, &file).context(|| format!("cannot write {}", file.display()))?;
    write_atomically(&folder.join("made.json"), text.as_bytes())?;
    Ok(file)
}

/// Fills the folder of the new system. Returns the files whose owners and rights a folder of an ordinary user's cannot have.
fn lay_out(root: &Path, isa: Isa, installed: &[PathBuf], mirrored: &[PathBuf]) -> Result<String> {
    let mut tree = Tree::create(root, isa)?;
    let mut database = Database::default();
    for package in installed {
        let files = tree.unpack(package)?;
        database.add(root, package, &files)?;
    }
    database.write(root)?;
    for (name, text) in FILES {
        tree::write(&root.join(name), text.as_bytes())?;
    }
    database::write_mirror(&root.join(MIRROR), mirrored)?;
    Ok(tree.owners())
}

/// It is no program of ordinary users: their `PATH` may not have its folder.
fn find_mke2fs() -> Option<PathBuf> {
    let usual =
        || ["/usr/sbin/mke2fs", "/sbin/mke2fs"].map(PathBuf::from).into_iter().find(|file| file.is_file());
    find_program("mke2fs").or_else(usual)
}

/// Removes a file or a folder that may be there.
fn remove(path: &Path) -> Result<()> {
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_that_is_not_whole_or_made_in_another_way_is_made_anew() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("disk.img");
        let describe = |recipe, length| {
            let text = serde_json::to_string(&Made { recipe, length, packages: Vec::new() }).unwrap();
            fs::write(folder.path().join("made.json"), text).unwrap();
        };
        assert_eq!(cached_in(folder.path()), None);
        describe(RECIPE, 5);
        assert_eq!(cached_in(folder.path()), None, "there is none");
        fs::write(&image, "whole").unwrap();
        assert_eq!(cached_in(folder.path()), Some(image.clone()));
        fs::write(&image, "hal").unwrap();
        assert_eq!(cached_in(folder.path()), None, "it is not whole");
        fs::write(&image, "whole").unwrap();
        describe(RECIPE + 1, 5);
        assert_eq!(cached_in(folder.path()), None, "it is made in another way");
    }
}
