// SPDX-License-Identifier: Apache-2.0 OR MIT
//! apt with its own sources, lists and archives: the options of one call, no file of the system changed.
//!
//! Two uses: installing a package for this machine from a release that the system does not list (QEMU from
//! backports), and downloading packages of another architecture (a Linux guest) as an ordinary user.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{find_program, last_lines, run};
use crate::failure::{Context, Failure, Result};

/// Signs Debian's archives; part of every Debian, a package elsewhere.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// The system's hooks behind an update are for its own lists: some of them empty the system's cache.
const WITHOUT_HOOKS: &str = "#clear APT::Update::Pre-Invoke;\n#clear APT::Update::Post-Invoke;\n\
                             #clear APT::Update::Post-Invoke-Success;\n";
/// Names the mirror to use instead.
const MIRROR_VARIABLE: &str = "TURNSTILE_DEBIAN_MIRROR";

/// Says whether apt can be used on this machine.
pub fn available() -> bool {
    find_program("apt-get").is_some() && Path::new(KEYRING).is_file()
}

/// A private apt.
#[derive(Debug)]
pub struct Apt {
    folder: PathBuf,
    architecture: Option<&'static str>,
    /// The release whose packages are preferred.
    release: String,
}

impl Apt {
    /// Prepares an apt for packages of a foreign architecture: it sees none of the system's packages.
    pub fn foreign(folder: &Path, architecture: &'static str, release: &str) -> Result<Self> {
        let mut apt = Self::prepare(folder, Some(architecture))?;
        release.clone_into(&mut apt.release);
        fs::write(apt.folder.join("status"), "").context(|| "cannot prepare apt's folder".into())?;
        apt.write_source("debian.list", &mirror()?, release)?;
        Ok(apt)
    }

    /// Adds a release, for packages that the preferred one does not have.
    pub fn add(&self, release: &str) -> Result<()> {
        self.write_source("more.list", &mirror()?, release)
    }

    /// Prepares an apt for this machine: the system's own Debian sources, and `release` beside them.
    pub fn host(folder: &Path, release: &str) -> Result<Self> {
        let apt = Self::prepare(folder, None)?;
        for file in system_sources() {
            let text = fs::read_to_string(&file).unwrap_or_default();
            let Some(name) = file.file_name() else { continue };
            if names_debian(&text) {
                fs::write(apt.sources().join(name), text).context(|| "cannot prepare apt's folder".into())?;
            }
        }
        apt.write_source("turnstile.list", &mirror()?, release)?;
        Ok(apt)
    }

    fn prepare(folder: &Path, architecture: Option<&'static str>) -> Result<Self> {
        if find_program("apt-get").is_none() {
            return Err(Failure::missing("this machine has no apt-get, which the tool needs for downloads")
                .help("use Debian 12 or newer (a container will do)"));
        }
        if !Path::new(KEYRING).is_file() {
            return Err(Failure::missing("the keys of Debian's archive are not installed")
                .help("apt-get install debian-archive-keyring"));
        }
        let apt = Apt { folder: folder.to_path_buf(), architecture, release: String::new() };
        for name in ["lists/partial", "archives/partial", "sources"] {
            let path = folder.join(name);
            fs::create_dir_all(&path).context(|| format!("cannot create {}", path.display()))?;
        }
        fs::write(apt.configuration(), WITHOUT_HOOKS).context(|| "cannot prepare apt's folder".into())?;
        Ok(apt)
    }

    /// Read by apt behind the system's own configuration.
    fn configuration(&self) -> PathBuf {
        self.folder.join("apt.conf")
    }

    fn sources(&self) -> PathBuf {
        self.folder.join("sources")
    }

    fn write_source(&self, name: &str, mirror: &str, release: &str) -> Result<()> {
        let line = format!("deb [signed-by={KEYRING}] {mirror} {release} main\n");
        fs::write(self.sources().join(name), line).context(|| "cannot write apt's sources".into())
    }

    fn command(&self, program: &str) -> Command {
        let folder = self.folder.display();
        let mut options = vec![
            "Dir::Etc::sourcelist=/dev/null".to_owned(),
            format!("Dir::Etc::sourceparts={folder}/sources"),
            format!("Dir::State::lists={folder}/lists"),
            format!("Dir::Cache={folder}"),
            format!("Dir::Cache::archives={folder}/archives"),
            "Acquire::Languages=none".to_owned(),
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".to_owned(),
            "Acquire::IndexTargets::deb::DEP-11-icons-small::DefaultEnabled=false".to_owned(),
            "Acquire::IndexTargets::deb::DEP-11-icons::DefaultEnabled=false".to_owned(),
            "Acquire::Retries=2".to_owned(),
            // apt would hand its downloads to a user who cannot see the checkout.
            "APT::Sandbox::User=".to_owned(),
            "Dpkg::Use-Pty=0".to_owned(),
            // In seconds: another one may be at work, the user's or another thread's.
            "DPkg::Lock::Timeout=600".to_owned(),
        ];
        if let Some(architecture) = self.architecture {
            options.push(format!("Dir::State={folder}"));
            options.push(format!("Dir::State::status={folder}/status"));
            options.push(format!("APT::Architecture={architecture}"));
            options.push(format!("APT::Architectures::={architecture}"));
            options.push(format!("APT::Default-Release={}", self.release));
            // Without this a list that cannot be fetched is a warning; of the system's own lists that is enough.
            options.push("APT::Update::Error-Mode=any".to_owned());
        }
        let mut command = Command::new(program);
        command.arg("-c").arg(self.configuration());
        for option in options {
            command.arg("-o").arg(option);
        }
        command.env("DEBIAN_FRONTEND", "noninteractive").env("LC_ALL", "C.UTF-8");
        command
    }

    /// Fetches the lists of packages.
    pub fn update(&self) -> Result<()> {
        run(self.command("apt-get").args(["-q", "update"])).map(drop).map_err(|failure| {
            failure.missing_prerequisite().help(format!(
                "the network is needed once, for {}; behind a proxy set http_proxy; to use another mirror set \
                 {MIRROR_VARIABLE}",
                mirror().unwrap_or_default()
            ))
        })
    }

    /// Resolves a meta package to the one package it depends on whose name starts with `prefix`.
    pub fn dependency(&self, meta: &str, prefix: &str) -> Result<String> {
        let output = run(self.command("apt-cache").args(["depends", meta]))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines()
            .filter_map(|line| line.trim().strip_prefix("Depends: "))
            .find(|name| name.starts_with(prefix))
            .map(str::to_owned)
            .ok_or_else(|| {
                Failure::failed(format!("{meta} depends on no {prefix}…")).details(last_lines(&text, 5))
            })
    }

    /// Downloads packages into `into` and returns the files.
    pub fn download(&self, packages: &[&str], into: &Path) -> Result<Vec<PathBuf>> {
        fs::create_dir_all(into).context(|| format!("cannot create {}", into.display()))?;
        run(self.command("apt-get").args(["-q", "download"]).args(packages).current_dir(into))?;
        packages_in(into)
    }

    /// Downloads packages, which apt's patterns may stand for, with what they depend on, into apt's own folder. Returns all files
    /// there, those of earlier calls, too.
    pub fn download_with_dependencies(&self, packages: &[&str]) -> Result<Vec<PathBuf>> {
        run(self
            .command("apt-get")
            .args(["-q", "-y", "--no-install-recommends", "--download-only", "install"])
            .args(packages))?;
        packages_in(&self.folder.join("archives"))
    }

    /// Installs packages on this machine, preferring `release`. Needs root.
    pub fn install(&self, packages: &[&str], release: &str) -> Result<()> {
        run(self
            .command("apt-get")
            .args(["-q", "-y", "--no-install-recommends", "-t", release, "install"])
            .args(packages))
        .map(drop)
    }
}

/// The packages in a folder, in the order of their names.
fn packages_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).context(|| format!("cannot read {}", folder.display()))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "deb"));
    files.sort();
    Ok(files)
}

/// The mirror to fetch from: the user's choice, or the system's own.
fn mirror() -> Result<String> {
    if let Ok(mirror) = std::env::var(MIRROR_VARIABLE) {
        return Ok(mirror.trim_end_matches('/').to_owned());
    }
    let texts = system_sources().into_iter().map(|file| fs::read_to_string(file).unwrap_or_default());
    texts.filter_map(|text| mirror_in(&text)).next().ok_or_else(|| {
        Failure::missing("apt's sources name no Debian mirror").help(format!(
            "set {MIRROR_VARIABLE} to the address of one, as it would stand in apt's sources (it ends in /debian)"
        ))
    })
}

/// Finds the address of a full Debian mirror (one that ends in `/debian`) in a sources file.
fn mirror_in(text: &str) -> Option<String> {
    text.lines()
        .filter(|line| !line.trim_start().starts_with('#'))
        .flat_map(str::split_whitespace)
        .map(|word| word.trim_end_matches('/'))
        .find(|word| {
            (word.starts_with("http://") || word.starts_with("https://")) && word.ends_with("/debian")
        })
        .map(str::to_owned)
}

fn names_debian(text: &str) -> bool {
    mirror_in(text).is_some() || text.contains("debian-security")
}

fn system_sources() -> Vec<PathBuf> {
    let parts =
        fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> = parts.collect();
    files.retain(|file| {
        file.extension().is_some_and(|extension| extension == "list" || extension == "sources")
    });
    files.sort();
    files.insert(0, PathBuf::from("/etc/apt/sources.list"));
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_mirror_in_both_kinds_of_sources() {
        let list =
            "# http://old.example/debian\ndeb [signed-by=/k.gpg] http://mirror.example/debian/ stable main\n";
        assert_eq!(mirror_in(list).as_deref(), Some("http://mirror.example/debian"));
        let deb822 = "Types: deb\nURIs: https://mirror.example/debian\nSuites: stable\n";
        assert_eq!(mirror_in(deb822).as_deref(), Some("https://mirror.example/debian"));
        assert_eq!(mirror_in("deb https://packages.example/apt tool main\n"), None);
        assert!(!names_debian("deb https://packages.example/apt tool main\n"));
        assert!(names_debian("URIs: http://deb.example/debian-security\n"));
    }
}
