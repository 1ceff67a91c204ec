// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the tool finds and keeps things: in a checkout with its cache and its build products; or as an installed package, whose
//! images lie beside the program, with what it writes in the user's own folders (XDG Base Directory Specification).

use std::path::{Path, PathBuf};
use std::sync::Once;

use crate::failure::{Context, Failure, Result};
use crate::isa::Isa;

/// The meter's file.
const METER: &str = "libturnstile_meter.so";

/// The folders of one checkout, or of an installed package.
#[derive(Clone, Debug)]
pub struct Layout {
    /// The checkout, or what the package has for all architectures.
    root: PathBuf,
    /// What the tool writes and need not keep.
    target: PathBuf,
    /// What has been downloaded.
    cache: PathBuf,
    /// Where the images are.
    images: PathBuf,
    /// Whether it is a package: nothing is built there.
    installed: bool,
}

impl Layout {
    /// Finds the checkout that `TURNSTILE_ROOT` names (set by `./x`); else the package that the program is from; else the nearest
    /// checkout above the current folder or above the program itself.
    pub fn find() -> Result<Self> {
        if std::env::var_os("TURNSTILE_ROOT").is_none()
            && let Some(program) = std::env::current_exe().ok()
            && let Some(layout) = Self::package(&program)
        {
            return Ok(layout);
        }
        let root = match std::env::var_os("TURNSTILE_ROOT") {
            Some(root) => Some(PathBuf::from(root)).filter(|root| is_checkout(root)),
            None => {
                let places = [std::env::current_dir().ok(), std::env::current_exe().ok()];
                places.iter().flatten().find_map(|place| {
                    place.ancestors().find(|folder| is_checkout(folder)).map(Path::to_path_buf)
                })
            }
        };
        let root = root.ok_or_else(|| {
            Failure::missing("this is not inside a Turnstile checkout").help(
                "run `./x` from the checkout, or set TURNSTILE_ROOT to its path; the tool builds the hypervisor \
                 from the sources there",
            )
        })?;
        let target = match std::env::var_os("CARGO_TARGET_DIR") {
            Some(target) => root.join(target),
            None => root.join("target"),
        };
        let (cache, images) = (root.join(".cache"), target.join("images"));
        Ok(Layout { root, target, cache, images, installed: false })
    }

    /// The package that a program is from: `PREFIX/bin/turnstile` has `PREFIX/share/turnstile`.
    fn package(program: &Path) -> Option<Self> {
        let root = program.parent()?.parent()?.join("share/turnstile");
        let images = root.join("images");
        if !images.is_dir() {
            return None;
        }
        let own = |variable: &str, usual: &str| {
            // A relative path is to be ignored (XDG Base Directory Specification).
            let named = std::env::var_os(variable).map(PathBuf::from).filter(|folder| folder.is_absolute());
            let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(usual);
            named.unwrap_or_else(home).join("turnstile")
        };
        let target = own("XDG_STATE_HOME", ".local/state");
        Some(Layout { root, target, cache: own("XDG_CACHE_HOME", ".cache"), images, installed: true })
    }

    /// Whether this is an installed package: its images are there, and nothing can be built.
    pub fn is_installed(&self) -> bool {
        self.installed
    }

    /// The checkout, or what the package has for all architectures.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Cargo's build products; of a package, what the tool writes.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// What has been downloaded: kept when the build products are cleaned.
    pub fn cache(&self) -> PathBuf {
        self.cache.clone()
    }

    /// What boot loaders take: the hypervisors' images and the guests'.
    pub fn images(&self) -> PathBuf {
        self.images.clone()
    }

    /// The hypervisor, built with these cargo features.
    pub fn hypervisor(&self, isa: Isa, features: &[&str]) -> PathBuf {
        self.images().join(format!("{}.{}", variant(isa, features), isa.image_extension()))
    }

    /// The program of a package's hypervisor with its symbols.
    pub fn packaged_program(&self, isa: Isa, features: &[&str]) -> PathBuf {
        self.images().join("symbols").join(format!("{}.elf", variant(isa, features)))
    }

    /// The meter, QEMU's plugin.
    pub fn meter(&self) -> PathBuf {
        match self.installed {
            true => self.root.join("../../lib/turnstile").join(METER),
            false => self.release().join(METER),
        }
    }

    /// Where cargo puts this machine's programs that are optimized.
    pub fn release(&self) -> PathBuf {
        self.target.join("release")
    }

    /// The image of a guest from `guests/`.
    pub fn guest(&self, isa: Isa, name: &str) -> PathBuf {
        let file = format!("{name}.{}", isa.image_extension());
        self.images().join("guests").join(isa.name()).join(file)
    }

    /// The image of a service from `services/`.
    pub fn service(&self, isa: Isa, name: &str) -> PathBuf {
        self.images().join("services").join(isa.name()).join(format!("{name}.service"))
    }

    /// The names of the services, sorted: those in the sources, or those of a package.
    pub fn service_names(&self) -> Vec<String> {
        if self.installed {
            let mut names: Vec<String> = Isa::ALL
                .into_iter()
                .filter_map(|isa| std::fs::read_dir(self.service(isa, "any").parent()?).ok())
                .flat_map(|folder| folder.flatten().filter_map(|entry| stem(&entry.path())))
                .collect();
            names.sort();
            names.dedup();
            return names;
        }
        let folders = std::fs::read_dir(self.root.join("services")).into_iter().flatten().flatten();
        let programs = folders.filter(|folder| folder.path().join("src/main.rs").is_file());
        let mut names: Vec<_> =
            programs.map(|folder| folder.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// The monitor for Linux KVM.
    pub fn vmm(&self, isa: Isa) -> PathBuf {
        self.images().join(format!("turnstile-vmm-{isa}"))
    }

    /// The program that works in Linux guests.
    pub fn work(&self, isa: Isa) -> PathBuf {
        self.images().join("guests").join(format!("work-{isa}"))
    }

    /// The names of an architecture's guests, sorted: those in the sources, or those of a package.
    pub fn guest_names(&self, isa: Isa) -> Vec<String> {
        let (folder, extension) = match self.installed {
            true => (self.images().join("guests").join(isa.name()), isa.image_extension()),
            false => (self.root.join("guests").join(isa.name()).join("src/bin"), "rs"),
        };
        let mut names: Vec<String> = std::fs::read_dir(folder)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| {
                let path = entry.path();
                let is_program = path.extension().is_some_and(|found| found == extension) || path.is_dir();
                is_program.then(|| stem(&path))?
            })
            .collect();
        names.sort();
        names
    }

    /// The bundles that this process starts: a folder of its own, so that two runs at once do not boot each
    /// other's. Folders of processes that have ended are removed.
    pub fn bundles(&self) -> PathBuf {
        static CLEAN: Once = Once::new();
        let all = self.target.join("bundles");
        CLEAN.call_once(|| remove_abandoned(&all));
        all.join(std::process::id().to_string())
    }

    /// The machines that `build` writes where the user names no folder.
    pub fn machines(&self) -> PathBuf {
        self.target.join("machines")
    }

    /// A path as the user would write it: relative to the current folder where that is shorter.
    pub fn shown(path: &Path) -> String {
        let here = std::env::current_dir().unwrap_or_default();
        path.strip_prefix(&here).unwrap_or(path).display().to_string()
    }
}

/// Removes the bundles that this process has started, and their folder if it is empty then: they are large.
pub fn remove_bundles(layout: &Layout) {
    let _ = std::fs::remove_dir_all(layout.bundles());
    let _ = std::fs::remove_dir(layout.target.join("bundles"));
}

/// The name of the hypervisor with these cargo features.
fn variant(isa: Isa, features: &[&str]) -> String {
    let features: String = features.iter().map(|feature| format!("-{feature}")).collect();
    format!("turnstile-{isa}{features}")
}

/// Removes what is named after a process that does not exist, and what has another name.
fn remove_abandoned(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.parse::<u32>().ok());
        if process.is_none_or(|process| !Path::new(&format!("/proc/{process}")).exists()) {
            // Another run may be removing it, too.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

fn is_checkout(folder: &Path) -> bool {
    folder.join("core/bundle/Cargo.toml").is_file() && folder.join("hypervisor/Cargo.toml").is_file()
}

/// Writes a file by way of a temporary one beside it: nobody ever sees half of it.
pub fn write_atomically(file: &Path, bytes: &[u8]) -> Result<()> {
    let doing = || format!("cannot write {}", file.display());
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder).context(doing)?;
    }
    let mut temporary = file.as_os_str().to_owned();
    temporary.push(format!(".{}", std::process::id()));
    let result = std::fs::write(&temporary, bytes).and_then(|()| std::fs::rename(&temporary, file));
    if result.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    match result {
        Err(error) if error.kind() == std::io::ErrorKind::StorageFull => {
            Err(disk_full(file, bytes.len() as u64))
        }
        result => result.context(doing),
    }
}

/// The failure of a disk on which so many bytes of a file, or of files in a folder, have no room.
pub fn disk_full(path: &Path, needed: u64) -> Failure {
    let free = free(path)
        .map_or_else(|_| "nothing is known of its room".to_owned(), |free| format!("{free} are free"));
    let what = format!("the disk of {} is full: {needed} bytes are needed, {free}", path.display());
    Failure::missing(what).help("make room there, or move the checkout to another disk")
}

/// What an ordinary user may still write on the disk of a path, in bytes.
pub fn free(path: &Path) -> Result<u64> {
    let there = path.ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("."));
    let disk = rustix::fs::statvfs(there)
        .context(|| format!("cannot read the free disk space of {}", there.display()))?;
    Ok(disk.f_bavail * disk.f_frsize)
}

/// Writes a file that the user named: in place if it is a device or a pipe, else [`write_atomically`], in a folder
/// that exists.
pub fn write_named(file: &Path, bytes: &[u8]) -> Result<()> {
    can_write(file)?;
    match std::fs::metadata(file) {
        Ok(found) if !found.is_file() => {
            std::fs::write(file, bytes).context(|| format!("cannot write {}", file.display()))
        }
        _ => write_atomically(file, bytes),
    }
}

/// Says before any work is done whether a file that the user named can be written.
pub fn can_write(file: &Path) -> Result<()> {
    let refuse = |why: &str| Err(Failure::usage(format!("cannot write {}: {why}", file.display())));
    if file.is_dir() {
        return refuse("it is a folder");
    }
    let parent = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if !parent.is_dir() {
        return refuse("its folder does not exist");
    }
    let writable = if file.exists() { file } else { parent };
    match rustix::fs::access(writable, rustix::fs::Access::WRITE_OK) {
        Ok(()) => Ok(()),
        Err(error) => refuse(&std::io::Error::from(error).to_string()),
    }
}

/// A file's name without its extension.
fn stem(path: &Path) -> Option<String> {
    path.file_stem().map(|stem| stem.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_file_is_written_where_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("figures.json");
        write_named(&file, b"1").unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"1");
        assert!(write_named(folder.path(), b"1").is_err(), "a folder");
        assert!(write_named(&folder.path().join("no/such/folder"), b"1").is_err());
        assert!(!folder.path().join("no").exists(), "nothing was created");
        write_named(Path::new("/dev/null"), b"1").unwrap();
        assert!(!std::fs::metadata("/dev/null").unwrap().is_file(), "a device stays one");
    }

    #[test]
    fn a_package_is_found_beside_its_program() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("usr/bin/turnstile");
        assert!(Layout::package(&program).is_none(), "a program alone");
        let guests = folder.path().join("usr/share/turnstile/images/guests/arm64");
        std::fs::create_dir_all(&guests).unwrap();
        std::fs::write(guests.join("echo.image"), b"").unwrap();
        let layout = Layout::package(&program).unwrap();
        assert!(layout.is_installed());
        assert_eq!(layout.guest_names(Isa::Arm64), ["echo"]);
        assert_eq!(layout.guest(Isa::Arm64, "echo"), guests.join("echo.image"));
        assert!(layout.guest_names(Isa::X86_64).is_empty());
        for (isa, name) in [(Isa::Arm64, "uart-16550"), (Isa::Arm64, "disk"), (Isa::X86_64, "disk")] {
            let service = layout.service(isa, name);
            std::fs::create_dir_all(service.parent().unwrap()).unwrap();
            std::fs::write(service, b"").unwrap();
        }
        assert_eq!(layout.service_names(), ["disk", "uart-16550"]);
        let shared = folder.path().join("usr/share");
        assert!(!layout.cache().starts_with(&shared) && !layout.bundles().starts_with(&shared));
    }

    #[test]
    fn bundles_of_ended_processes_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let mine = folder.path().join(std::process::id().to_string());
        let gone = folder.path().join(u32::MAX.to_string());
        std::fs::create_dir(&mine).unwrap();
        std::fs::create_dir(&gone).unwrap();
        remove_abandoned(folder.path());
        assert!(mine.exists() && !gone.exists());
    }
}
