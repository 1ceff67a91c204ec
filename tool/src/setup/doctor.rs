// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `turnstile doctor`: what this machine has, what it lacks, and how to get that. Changes nothing.

use std::fs;
use std::path::PathBuf;
use std::time::SystemTime;

use serde::Serialize;
use walkdir::WalkDir;

use super::debian::Flavour;
use super::packages::Program;
use super::{apt, bochs, chromium, debian, find_program, peers, qemu, rust, server, space, u_boot};
use crate::failure::{Context, Failure, Kind, Result};
use crate::isa::Isa;
use crate::layout::Layout;
use crate::sheet::{Column, Sheet};
use crate::ui;

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
    let findings: Vec<Finding> = match layout.is_installed() {
        true => to_run(layout).into_iter().chain([room(layout)]).collect(),
        false => to_build(layout)
            .into_iter()
            .chain(to_run(layout))
            .chain([browser(), second_emulator()])
            .chain(to_compare(layout))
            .chain([room(layout)])
            .collect(),
    };
    if json {
        let text = serde_json::to_string_pretty(&findings).context(|| "cannot write the report".into())?;
        println!("{text}");
    } else {
        println!("{}", sheet(&findings).show(ui::terminal_width()));
    }
    if findings.iter().any(|finding| finding.state == State::Missing) {
        return Err(Failure::reported(Kind::Missing));
    }
    Ok(())
}

/// What is needed to build the images.
fn to_build(layout: &Layout) -> [Finding; 3] {
    [toolchain(layout), bare_metal(layout), linker()]
}

/// What is needed to run them.
fn to_run(layout: &Layout) -> [Finding; 12] {
    [
        emulator(Isa::Arm64, "QEMU, arm64"),
        emulator(Isa::X86_64, "QEMU, x86_64"),
        emulator(Isa::Power64, "QEMU, power64"),
        packages(),
        guest(layout, Isa::Arm64, "Debian guest, arm64"),
        guest(layout, Isa::X86_64, "Debian guest, x86_64"),
        guest(layout, Isa::Power64, "Debian guest, power64"),
        u_boot(layout),
        server(layout),
        images(layout, Isa::Arm64, "hypervisor, arm64"),
        images(layout, Isa::X86_64, "hypervisor, x86_64"),
        images(layout, Isa::Power64, "hypervisor, power64"),
    ]
}

/// What is needed to measure other hypervisors beside ours.
fn to_compare(layout: &Layout) -> [Finding; 3] {
    [
        compared(layout, Isa::Arm64, "KVM and Xen, arm64", "60 MB"),
        compared(layout, Isa::X86_64, "KVM, x86_64", "180 MB"),
        compared(layout, Isa::Power64, "KVM, power64", "90 MB"),
    ]
}

/// A line for each finding: what a machine has that lacks nothing fits 80 columns and 24 lines.
fn sheet(findings: &[Finding]) -> Sheet {
    let mut sheet = Sheet::new([Column::key(""), Column::key(""), Column::text("")]);
    for Finding { what, state, found, how } in findings {
        let mark = match state {
            State::Ok => "ok",
            State::Later => "later",
            State::Missing => "MISSING",
        };
        // What is fetched when it is needed is not there: only how matters.
        let text = match state {
            State::Later => how.clone(),
            _ if how.is_empty() => found.clone(),
            _ => format!("{found}: {how}"),
        };
        sheet.add([mark, what, &text]);
    }
    sheet
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
        Ok(_) => Finding::ok(WHAT, "of that toolchain"),
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

fn emulator(isa: Isa, what: &'static str) -> Finding {
    let how = |found: String| match super::is_root() && apt::available() {
        true => Finding::later(what, found, "installed by the first command that needs it"),
        false => Finding::missing(what, found, qemu::advice(isa)),
    };
    match qemu::look(isa, None) {
        qemu::Found::Good(qemu) => Finding::ok(what, format!("{} ({})", qemu.version, qemu.path.display())),
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
        None => of_the_suite(&chromium::PROGRAM),
    }
}

fn second_emulator() -> Finding {
    const WHAT: &str = "Bochs";
    match bochs::look() {
        Some(_) => Finding::ok(WHAT, "a second emulator of PCs, and GRUB"),
        None => of_the_suite(&bochs::PROGRAM),
    }
}

/// A program that is not there, and that the test suite alone uses.
fn of_the_suite(program: &'static Program) -> Finding {
    let how = match super::is_root() && apt::available() {
        true => "only `./x test` uses it, and installs it".to_owned(),
        false => program.advice() + "; only `./x test` uses it",
    };
    Finding::later(program.name, "not installed", how)
}

fn guest(layout: &Layout, isa: Isa, what: &'static str) -> Finding {
    match debian::cached(layout, isa, Flavour::Cloud) {
        Some(debian) => Finding::ok(what, package(&debian.versions.linux)),
        None => Finding::later(what, "not downloaded", "fetched by the first run that needs it (30 MB)"),
    }
}

/// What distinguishes a package of a kernel: without what all of them have, and without what the name says already.
fn package(file: &str) -> &str {
    let name = file.strip_prefix("linux-image-").unwrap_or(file);
    name.split_once('_').map_or(name, |(name, _)| name)
}

fn u_boot(layout: &Layout) -> Finding {
    const WHAT: &str = "U-Boot, arm64";
    match u_boot::cached(layout) {
        Some(_) => Finding::ok(WHAT, "Debian's, for QEMU's `virt`"),
        None => Finding::later(WHAT, "not downloaded", "fetched by the first run that needs it (2 MB)"),
    }
}

fn server(layout: &Layout) -> Finding {
    const WHAT: &str = "Debian on a disk";
    let made = Isa::ALL.into_iter().filter(|isa| server::cached(layout, *isa).is_some());
    match made.map(Isa::name).collect::<Vec<_>>().join(", ") {
        made if made.is_empty() => {
            Finding::later(WHAT, "not made", "made by the first run that needs it (40 MB, with mke2fs)")
        }
        made => Finding::ok(WHAT, format!("`debian:server` for {made}")),
    }
}

fn compared(layout: &Layout, isa: Isa, what: &'static str, size: &str) -> Finding {
    match peers::versions(layout, isa) {
        Some(versions) => Finding::ok(what, versions),
        None => Finding::later(what, "not downloaded", format!("fetched by `bench --subjects` ({size})")),
    }
}

fn images(layout: &Layout, isa: Isa, what: &'static str) -> Finding {
    if layout.is_installed() {
        return Finding::ok(what, "in the package");
    }
    let built = |file: PathBuf| fs::metadata(file).and_then(|found| found.modified()).ok();
    let guests = layout.guest_names(isa).into_iter().map(|name| built(layout.guest(isa, &name)));
    let oldest = guests.chain([built(layout.hypervisor(isa, &[]))]).min().flatten();
    match oldest {
        Some(built) if built >= newest(&sources(layout, isa)) => Finding::ok(what, "built, with its guests"),
        Some(_) => Finding::later(what, "older than its sources", "the next command that needs it builds it"),
        None => Finding::later(what, "not built", "the first command that needs it builds it"),
    }
}

/// What an architecture's images are built from.
fn sources(layout: &Layout, isa: Isa) -> Vec<PathBuf> {
    let [arch, guests] = ["arch", "guests"].map(|folder| layout.root().join(folder));
    let own = [arch.join(isa.name()), guests.join(isa.name())];
    let shared = ["core", "hypervisor/src", "arch/common", "arch/threads", "guests/common", "Cargo.lock"];
    shared.iter().map(|path| layout.root().join(path)).chain(own).collect()
}

/// When the newest of files was changed; the epoch if there is none.
fn newest(places: &[PathBuf]) -> SystemTime {
    let entries = places
        .iter()
        .flat_map(|place| WalkDir::new(place).into_iter().filter_entry(|entry| entry.file_name() != "tests"));
    let files = entries.flatten().filter(|entry| entry.file_type().is_file());
    let changed = files.filter_map(|entry| entry.metadata().ok()?.modified().ok());
    changed.max().unwrap_or(SystemTime::UNIX_EPOCH)
}

fn room(layout: &Layout) -> Finding {
    const WHAT: &str = "disk";
    let free = match space::free(layout) {
        Ok(free) => free,
        Err(failure) => {
            return Finding::missing(WHAT, failure.to_string(), "the checkout must be on a writable disk");
        }
    };
    let found = format!("{} free", space::gib(free));
    let built = space::built(layout);
    if layout.is_installed() {
        return Finding::ok(WHAT, found);
    }
    let [demo, suite] = [space::DEMO, space::SUITE].map(|all| all.saturating_sub(built));
    let advice = |what: &str, room: u64| format!("free {} of disk space for {what}", space::gib(room));
    match free {
        _ if free < demo => Finding::missing(WHAT, found, advice("build products and downloads", demo)),
        _ if free < suite => Finding { how: advice("`./x test`", suite), ..Finding::ok(WHAT, found) },
        _ => Finding::ok(WHAT, found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sheet::assert_fits;

    #[test]
    fn all_of_it_fits_a_small_terminal() {
        let layout = Layout::find().unwrap();
        let findings: Vec<Finding> =
            to_build(&layout).into_iter().chain(to_run(&layout)).chain(to_compare(&layout)).collect();
        assert_fits(|width| sheet(&findings).show(width), &["Rust toolchain", "Debian guest, power64"]);
        // What this machine has may be long; what the tool gets itself is not.
        let later = |finding: Finding| match finding.state {
            State::Later => finding,
            _ => Finding::ok(finding.what, "there"),
        };
        let whole: Vec<Finding> =
            findings.into_iter().chain([browser(), second_emulator(), room(&layout)]).map(later).collect();
        let text = sheet(&whole).show(Some(80));
        assert!(text.lines().count() < 23, "{text}");
    }
}
