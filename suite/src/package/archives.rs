// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From a folder to an archive and a Debian package.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use turnstile::failure::{Context, Result};
use turnstile::layout::Layout;
use turnstile::setup::{find_program, run};

/// The version of everything.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The files that were made.
pub struct Made {
    /// The archive: it is unpacked anywhere.
    pub archive: PathBuf,
    /// The Debian package, where `dpkg-deb` is there to make it.
    pub debian: Option<PathBuf>,
}

/// Writes both for the files below `root`.
pub fn write(layout: &Layout, root: &Path, folder: &Path) -> Result<Made> {
    let machine = std::env::consts::ARCH;
    let name = format!("turnstile-{VERSION}-{machine}");
    let archive = folder.join(format!("{name}.tar.gz"));
    let mut tar = Command::new("tar");
    // Owned by whoever unpacks it, whoever made it.
    tar.args(["--create", "--gzip", "--owner=0", "--group=0", "--sort=name", "--file"]).arg(&archive);
    tar.arg("--directory").arg(root.join("usr")).arg(format!("--transform=s,^\\.,{name},")).arg(".");
    run(&mut tar)?;
    let debian = match find_program("dpkg-deb") {
        Some(program) => Some(debian(layout, &program, root, folder)?),
        None => None,
    };
    Ok(Made { archive, debian })
}

fn debian(layout: &Layout, program: &Path, root: &Path, folder: &Path) -> Result<PathBuf> {
    let machine = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "powerpc64" => "ppc64el",
        other => other,
    };
    let control = root.join("DEBIAN/control");
    let doing = || format!("cannot write {}", control.display());
    fs::create_dir_all(root.join("DEBIAN")).context(doing)?;
    fs::write(&control, fields(machine)).context(doing)?;
    // Debian's name of the file with the licences.
    let copyright = root.join("usr/share/doc/turnstile/copyright");
    let licence = fs::read(layout.root().join("LICENSE-MIT")).context(|| "cannot read LICENSE-MIT".into())?;
    fs::write(&copyright, licence).context(|| format!("cannot write {}", copyright.display()))?;
    let file = folder.join(format!("turnstile_{VERSION}_{machine}.deb"));
    let mut build = Command::new(program);
    run(build.args(["--root-owner-group", "-Zgzip", "--build"]).arg(root).arg(&file))?;
    Ok(file)
}

/// The control file (deb-control(5)).
fn fields(machine: &str) -> String {
    format!(
        "Package: turnstile\nVersion: {VERSION}\nArchitecture: {machine}\nMaintainer: Turnstile's developers\n\
         Section: otherosfs\nPriority: optional\nDepends: libc6, libgcc-s1\n\
         Recommends: qemu-system-arm, qemu-system-x86, qemu-system-ppc, ipxe-qemu, e2fsprogs\n\
         Description: bare-metal hypervisor whose exits are cheap, and a tool that measures exits\n \
         Builds virtual machines for Armv8-A, AMD64 and POWER, runs them in QEMU, and counts what each exit\n \
         costs, side by side with other hypervisors.\n"
    )
}

#[cfg(test)]
mod tests {
    #[test]
    fn lines_of_a_description_begin_with_a_space() {
        let fields = super::fields("amd64");
        assert!(
            fields.lines().all(|line| line.starts_with(' ') || line.split_once(": ").is_some()),
            "{fields}"
        );
    }
}
