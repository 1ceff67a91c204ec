// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tells dpkg of packages that somebody else has unpacked, and apt of packages in a folder.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use data_encoding::HEXLOWER;
use md5::Md5;
use sha2::{Digest, Sha256};

use super::tree;
use crate::failure::{Context, Failure, Result};
use crate::setup::fetch::file_name;
use crate::setup::run;

/// Where dpkg keeps what it knows.
const FOLDER: &str = "var/lib/dpkg";

/// The packages of a new system, for dpkg: unpacked, and not configured.
#[derive(Default)]
pub struct Database {
    status: String,
}

impl Database {
    /// Adds a package, which is unpacked in `root`, with the paths of its files.
    pub fn add(&mut self, root: &Path, package: &Path, files: &[String]) -> Result<()> {
        let info = root.join(FOLDER).join("info");
        let scripts = package.with_extension("control");
        run(Command::new("dpkg-deb").arg("--control").arg(package).arg(&scripts))?;
        let control = fs::read_to_string(scripts.join("control"));
        let control = control.context(|| format!("{} has no description", package.display()))?;
        let name = name_for_files(&control)
            .ok_or_else(|| Failure::failed(format!("{} does not say its name", package.display())))?;
        tree::write(&info.join(format!("{name}.list")), (files.join("\n") + "\n").as_bytes())?;
        let mut conffiles = String::new();
        for entry in
            fs::read_dir(&scripts).context(|| format!("cannot read {}", scripts.display()))?.flatten()
        {
            let kind = file_name(&entry.path());
            if kind == "conffiles" {
                conffiles = fs::read_to_string(entry.path()).unwrap_or_default();
            }
            if kind != "control" {
                let to = info.join(format!("{name}.{kind}"));
                fs::copy(entry.path(), &to).context(|| format!("cannot write {}", to.display()))?;
            }
        }
        fs::remove_dir_all(&scripts).context(|| format!("cannot remove {}", scripts.display()))?;
        self.status.push_str(&stanza(&control, &digests(root, &conffiles)?));
        Ok(())
    }

    /// Writes what dpkg is to know.
    pub fn write(self, root: &Path) -> Result<()> {
        let folder = root.join(FOLDER);
        let files = [("status", self.status.as_str()), ("available", ""), ("info/format", "1\n")];
        for (name, text) in files {
            tree::write(&folder.join(name), text.as_bytes())?;
        }
        for name in ["alternatives", "updates"] {
            tree::create(&folder.join(name))?;
        }
        Ok(())
    }
}

/// The value of a field of a description.
fn field<'c>(control: &'c str, name: &str) -> Option<&'c str> {
    let value = |line: &'c str| line.strip_prefix(name)?.strip_prefix(':');
    control.lines().find_map(value).map(str::trim)
}

/// How the files of a package in dpkg's folder begin: those of several architectures say theirs.
fn name_for_files(control: &str) -> Option<String> {
    let name = field(control, "Package")?;
    match (field(control, "Multi-Arch"), field(control, "Architecture")) {
        (Some("same"), Some(architecture)) => Some(format!("{name}:{architecture}")),
        _ => Some(name.to_owned()),
    }
}

/// Configuration files with the MD5 of what the package has in them. They are in place, so dpkg finds nothing to do when it
/// configures the package, and knows later what a user has changed.
fn digests(root: &Path, conffiles: &str) -> Result<String> {
    let mut lines = String::new();
    for file in conffiles.lines().filter(|line| line.starts_with('/')) {
        let bytes = fs::read(root.join(file.trim_start_matches('/')));
        let bytes = bytes.context(|| format!("the package's configuration file {file} is not there"))?;
        let _ = writeln!(lines, " {file} {}", HEXLOWER.encode(&Md5::digest(bytes)));
    }
    Ok(lines)
}

/// A package as dpkg's list of all has it.
fn stanza(control: &str, conffiles: &str) -> String {
    let mut stanza = String::new();
    for line in control.lines().filter(|line| !line.is_empty()) {
        let _ = writeln!(stanza, "{line}");
        if line.starts_with("Package:") {
            stanza.push_str("Status: install ok unpacked\n");
        }
    }
    if !conffiles.is_empty() {
        let _ = write!(stanza, "Conffiles:\n{conffiles}");
    }
    stanza.push('\n');
    stanza
}

/// Makes a mirror of packages in a folder: the packages, and apt's list of them.
pub fn write_mirror(folder: &Path, packages: &[PathBuf]) -> Result<()> {
    let mut list = String::new();
    for package in packages {
        let control = run(Command::new("dpkg-deb").arg("--field").arg(package))?.stdout;
        let bytes = fs::read(package).context(|| format!("cannot read {}", package.display()))?;
        // apt writes a colon of a version, which no path needs, in this way.
        let name = file_name(package).replace("%3a", ".");
        tree::write(&folder.join(&name), &bytes)?;
        let digest = HEXLOWER.encode(&Sha256::digest(&bytes));
        let _ = writeln!(
            list,
            "{}\nFilename: ./{name}\nSize: {}\nSHA256: {digest}\n",
            String::from_utf8_lossy(&control).trim_end(),
            bytes.len()
        );
    }
    tree::write(&folder.join("Packages"), list.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTROL: &str = "Package: libx1\nVersion: 1:2-3\nArchitecture: arm64\nMulti-Arch: same\n\
                           Description: a library\n Package: of nothing\n";

    #[test]
    fn packages_are_unpacked_and_not_configured() {
        assert_eq!(name_for_files(CONTROL).as_deref(), Some("libx1:arm64"));
        assert_eq!(
            name_for_files("Package: tar\nArchitecture: arm64\nMulti-Arch: foreign\n").as_deref(),
            Some("tar")
        );
        assert_eq!(name_for_files("Description: Package: x\n"), None);
        let told = stanza(CONTROL, " /etc/x.conf 0123\n");
        assert!(told.starts_with("Package: libx1\nStatus: install ok unpacked\nVersion: 1:2-3\n"), "{told}");
        assert!(told.ends_with(" Package: of nothing\nConffiles:\n /etc/x.conf 0123\n\n"), "{told}");
        assert!(!stanza(CONTROL, "").contains("Conffiles"));
    }

    #[test]
    fn configuration_files_have_their_digests() {
        let folder = tempfile::tempdir().unwrap();
        tree::write(&folder.path().join("etc/x.conf"), b"a = 1\n").unwrap();
        let lines = digests(folder.path(), "/etc/x.conf\nremove-on-upgrade /etc/y.conf\n").unwrap();
        assert_eq!(lines, " /etc/x.conf 9358f2568f3316fe7e78a4fa7707c414\n");
        assert!(digests(folder.path(), "/etc/z.conf\n").is_err());
    }
}
