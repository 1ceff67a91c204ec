// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds QEMU, judges its version, and installs one from Debian's backports where that is possible.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::apt::Apt;
use super::{find_program, is_root};
use crate::failure::{Context, Failure, Result};
use crate::isa::Isa;
use crate::layout::Layout;
use crate::ui;

/// Older ones emulate virtualization with faults that were mended since, and count exits differently.
pub const OLDEST: (u32, u32) = (10, 0);

/// A QEMU that can be used.
#[derive(Clone, Debug)]
pub struct Qemu {
    /// The program.
    pub path: PathBuf,
    /// Its version, as it says itself.
    pub version: String,
}

/// What is known about a QEMU.
#[derive(Debug)]
pub enum Found {
    /// New enough.
    Good(Qemu),
    /// There, but not usable: the sentence says why.
    Bad(String),
    /// Not there.
    Nothing,
}

/// Looks for QEMU without changing anything.
pub fn look(isa: Isa, choice: Option<&Path>) -> Found {
    let path = match choice {
        Some(path) if path.components().count() == 1 => {
            find_program(&path.to_string_lossy()).unwrap_or_else(|| path.to_path_buf())
        }
        Some(path) => path.to_path_buf(),
        None => match find_program(isa.emulator()) {
            Some(path) => path,
            None => return Found::Nothing,
        },
    };
    let output = match Command::new(&path).arg("--version").output() {
        Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
        Err(error) => return Found::Bad(format!("{} does not start: {error}", path.display())),
    };
    match parse_version(&output) {
        None => Found::Bad(format!("{} is not QEMU (it does not say its version)", path.display())),
        Some((major, minor, _)) if (major, minor) >= OLDEST && choice.is_some() && !emulates(&path, isa) => {
            Found::Bad(format!("{} does not emulate {isa}", path.display()))
        }
        Some((major, minor, version)) if (major, minor) >= OLDEST => Found::Good(Qemu { path, version }),
        Some((.., version)) => Found::Bad(format!(
            "{} is QEMU {version}; {}.{} or newer is needed",
            path.display(),
            OLDEST.0,
            OLDEST.1
        )),
    }
}

/// Whether a QEMU of the user's is for this architecture: each program lists its own machines.
fn emulates(path: &Path, isa: Isa) -> bool {
    let machine = match isa {
        Isa::Arm64 => "virt",
        Isa::X86_64 => "q35",
        Isa::Power64 => "powernv9",
    };
    let output = Command::new(path).args(["-machine", "help"]).output();
    let said = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    said.lines().any(|line| line.split_whitespace().next() == Some(machine))
}

/// Finds a QEMU that can be used, installing it if it is missing and may be installed.
///
/// `choice` is the user's own QEMU: it is used or refused, never replaced.
pub fn ensure(layout: &Layout, isa: Isa, choice: Option<&Path>) -> Result<Qemu> {
    let problem = match look(isa, choice) {
        Found::Good(qemu) => return Ok(qemu),
        Found::Bad(problem) => problem,
        Found::Nothing => format!("{} is not installed", isa.emulator()),
    };
    if choice.is_some() {
        return Err(Failure::missing(problem).help("name another one with --qemu, or omit --qemu"));
    }
    let Some(release) = debian_release() else {
        return Err(Failure::missing(problem).help(advice(isa)));
    };
    if !is_root() {
        return Err(Failure::missing(problem).help(advice(isa)));
    }
    install(layout, isa, &release)?;
    match look(isa, None) {
        Found::Good(qemu) => Ok(qemu),
        Found::Bad(problem) => Err(Failure::missing(problem).help(advice(isa))),
        Found::Nothing => {
            Err(Failure::missing(format!("{} is still missing", isa.emulator())).help(advice(isa)))
        }
    }
}

/// Fails if a QEMU cannot load plugins: some are built without.
pub fn can_load(qemu: &Qemu, plugin: &Path) -> Result<()> {
    // It takes its options before it lists the machines, and no option loads the plugin so early.
    let mut probe = Command::new(&qemu.path);
    probe.arg("-plugin").arg(plugin).args(["-machine", "help"]);
    let output = probe.output().context(|| format!("cannot start {}", qemu.path.display()))?;
    if output.status.success() {
        return Ok(());
    }
    let what = format!("{} has no plugin support, which the meter needs", qemu.path.display());
    Err(Failure::missing(what).details(String::from_utf8_lossy(&output.stderr)).help(
        "use a QEMU configured with --enable-plugins, such as Debian's: name it with --qemu, or omit --qemu",
    ))
}

fn install(layout: &Layout, isa: Isa, release: &str) -> Result<()> {
    let package = isa.emulator_package();
    // Backports exist for the releases whose own QEMU is too old; newer releases have it themselves.
    let from = if release == "bookworm" { "bookworm-backports" } else { release };
    ui::note(&format!("installing {package} from Debian {from} (apt's own sources stay as they are)"));
    let step = ui::Step::start(format!("installing {package}"));
    let folder = layout.cache().join("apt-host");
    let apt = Apt::host(&folder, from)?;
    step.detail("reading the package lists");
    apt.update()?;
    step.detail("downloading and installing");
    apt.install(&[package], from).map_err(|failure| failure.help(advice(isa)))?;
    // The lists are of no use any more, and large.
    let _ = std::fs::remove_dir_all(&folder);
    step.done();
    Ok(())
}

/// Says how a user gets QEMU on this machine.
pub fn advice(isa: Isa) -> String {
    let package = isa.emulator_package();
    match debian_release() {
        Some(release) if release == "bookworm" => format!(
            "as root: run this command once; it installs the package and leaves apt's sources alone\n\
             or add the suite bookworm-backports to apt's sources, then: apt-get update && \
             apt-get install -t bookworm-backports {package}"
        ),
        Some(_) => format!("as root: apt-get update && apt-get install {package}"),
        None => format!(
            "install QEMU {}.{} or newer with the emulator for {isa} ({}) by your system's package manager \
             or from https://www.qemu.org/download/",
            OLDEST.0,
            OLDEST.1,
            isa.emulator()
        ),
    }
}

/// The code name of the Debian release of this machine, if it is one.
pub(super) fn debian_release() -> Option<String> {
    find_program("apt-get")?;
    let text = std::fs::read_to_string("/etc/os-release").ok()?;
    let value = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        line.map(|value| value.trim_matches('"').to_owned())
    };
    (value("ID").as_deref() == Some("debian")).then(|| value("VERSION_CODENAME"))?
}

/// Reads "QEMU emulator version 10.0.2 (Debian …)".
fn parse_version(text: &str) -> Option<(u32, u32, String)> {
    let version = text.split("QEMU emulator version ").nth(1)?.split_whitespace().next()?;
    let mut numbers = version.split('.').map(|part| part.parse::<u32>().ok());
    Some((numbers.next()??, numbers.next().flatten().unwrap_or(0), version.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_versions() {
        let parsed = parse_version("QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2)\nCopyright");
        assert_eq!(parsed, Some((10, 0, "10.0.2".to_owned())));
        assert_eq!(parse_version("QEMU emulator version 7.2.17\n").map(|v| (v.0, v.1)), Some((7, 2)));
        assert_eq!(parse_version("GNU bash, version 5.2"), None);
    }
}
