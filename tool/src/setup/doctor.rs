// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `turnstile doctor`: what this machine has, what it lacks, and how to get that. Changes nothing.

use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;

use super::{apt, chromium, debian, find_program, peers, qemu, rust};
use crate::failure::{Context, Failure, Kind, Result};
use crate::layout::Layout;

/// How a finding stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    /// There.
    Ok,
    /// Not there; the tool gets it itself when it is needed.
    Later,
    /// Not there; the user has to act.
    Missing,
}

/// One line of the report.
#[derive(Debug, Serialize)]
struct Finding {
    what: &'static str,
    state: State,
    found: String,
    how: String,
}

impl Finding {
    fn ok(what: &'static str, found: impl Into<String>) -> Self {
        Finding { what, state: State::Ok, found: found.into(), how: String::new() }
    }

    fn missing(what: &'static str, found: impl Into<String>, how: impl Into<String>) -> Self {
        Finding { what, state: State::Missing, found: found.into(), how: how.into() }
    }

    fn later(what: &'static str, found: impl Into<String>, how: impl Into<String>) -> Self {
        Finding { what, state: State::Later, found: found.into(), how: how.into() }
    }
}

/// Reports on the machine; fails with exit code 3 if the user has to install something.
pub fn doctor(layout: &Layout, json: bool) -> Result<()> {
    let findings = [
        toolchain(layout),
        bare_metal(layout),
        linker(),
        emulator(),
        packages(),
        browser(),
        guest(layout),
        compared(layout),
        images(layout),
        space(layout),
    ];
    if json {
        let text = serde_json::to_string_pretty(&findings).context(|| "cannot write the report".into())?;
        println!("{text}");
    } else {
        println!("{}", table(&findings));
    }
    if findings.iter().any(|finding| finding.state == State::Missing) {
        return Err(Failure::reported(Kind::Missing));
    }
    Ok(())
}

fn table(findings: &[Finding]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(["what", "state", "found", "how to get it"]);
    for finding in findings {
        let state = match finding.state {
            State::Ok => "ok",
            State::Later => "later",
            State::Missing => "MISSING",
        };
        table.add_row([finding.what, state, &finding.found, &finding.how]);
    }
    table
}

fn toolchain(layout: &Layout) -> Finding {
    const WHAT: &str = "Rust toolchain";
    match super::run(rust::cargo(layout).arg("--version")) {
        Ok(output) => Finding::ok(WHAT, String::from_utf8_lossy(&output.stdout).trim()),
        Err(_) => Finding::missing(
            WHAT,
            "cargo does not run here",
            "install rustup (https://rustup.rs), then run `./x`",
        ),
    }
}

fn bare_metal(layout: &Layout) -> Finding {
    const WHAT: &str = "llvm-objcopy";
    match rust::objcopy(layout) {
        Ok(path) => Finding::ok(WHAT, path.display().to_string()),
        Err(failure) => {
            Finding::missing(WHAT, failure.to_string(), "run `./x`: it adds the component llvm-tools")
        }
    }
}

fn linker() -> Finding {
    match find_program("cc") {
        Some(path) => Finding::ok("C linker", path.display().to_string()),
        None => Finding::missing("C linker", "no cc", "as root: apt-get install gcc libc6-dev"),
    }
}

fn emulator() -> Finding {
    let how = |found: String| match super::is_root() && apt::available() {
        true => Finding::later("QEMU", found, "installed by the first command that needs it"),
        false => Finding::missing("QEMU", found, qemu::advice()),
    };
    match qemu::look(None) {
        qemu::Found::Good(qemu) => Finding::ok("QEMU", format!("{} ({})", qemu.version, qemu.path.display())),
        qemu::Found::Bad(problem) => how(problem),
        qemu::Found::Nothing => how("not installed".to_owned()),
    }
}

fn packages() -> Finding {
    if apt::available() && find_program("dpkg-deb").is_some() {
        Finding::ok("apt, dpkg-deb", "used for the Debian guest")
    } else {
        Finding::missing(
            "apt, dpkg-deb",
            "not a Debian system",
            "use Debian 12 or newer (a container will do)",
        )
    }
}

fn browser() -> Finding {
    const WHAT: &str = "Chromium";
    match chromium::look() {
        Some(path) => Finding::ok(WHAT, path.display().to_string()),
        None if super::is_root() && apt::available() => {
            Finding::later(WHAT, "not installed", "installed by `./x test`, which opens the report in it")
        }
        None => Finding::later(WHAT, "not installed", chromium::advice() + "; only `./x test` uses it"),
    }
}

fn guest(layout: &Layout) -> Finding {
    match debian::cached(layout) {
        Some(debian) => Finding::ok("Debian guest", debian.versions.linux),
        None => Finding::later(
            "Debian guest",
            "not downloaded",
            "`./x demo`, or the first run that uses it (30 MB)",
        ),
    }
}

fn compared(layout: &Layout) -> Finding {
    const WHAT: &str = "KVM and Xen to compare with";
    match peers::versions(layout) {
        Some([linux, older, xen]) => Finding::ok(WHAT, format!("Linux {linux} and {older}, Xen {xen}")),
        None => Finding::later(WHAT, "not downloaded", "the first run that measures them (60 MB)"),
    }
}

fn images(layout: &Layout) -> Finding {
    match layout.hypervisor().is_file() {
        true => Finding::ok("hypervisor image", Layout::shown(&layout.hypervisor())),
        false => Finding::later("hypervisor image", "not built", "built by the first command that needs it"),
    }
}

fn space(layout: &Layout) -> Finding {
    const NEEDED: u64 = 2 << 30;
    match rustix::fs::statvfs(layout.root()) {
        Ok(disk) => {
            let free = disk.f_bavail * disk.f_frsize;
            let found = format!("{:.1} GiB free", free as f64 / f64::from(1 << 30));
            if free >= NEEDED || layout.hypervisor().is_file() {
                Finding::ok("disk", found)
            } else {
                Finding::missing("disk", found, "make 2 GiB of room for build products and downloads")
            }
        }
        Err(error) => Finding::missing("disk", error.to_string(), "the checkout must be on a writable disk"),
    }
}
