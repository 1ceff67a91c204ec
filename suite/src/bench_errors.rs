// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `bench` says and does when something cannot be measured: it is named, and the rest comes out.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use turnstile::bench::document::Document;
use turnstile::bench::rows::FEWEST;
use turnstile::bench::rows::{self, ROWS, Row};
use turnstile::bench::runner::{Job, Runner};
use turnstile::bench::subjects::Subject;
use turnstile::failure::{Context, Failure, Result};
use turnstile::isa::Isa;
use turnstile::layout::Layout;
use turnstile::setup::qemu::Qemu;

use super::tool;

/// A guest that measures nothing: what it prints is garbage to the bench.
static NO_ROW: Row = rows::simple("beacon", "nothing");
/// Iterations that take far longer than the time-out of the test.
const ENDLESS: u64 = 1 << 32;
const SHORT: Duration = Duration::from_secs(3);

/// Makes each mistake once.
pub fn check(layout: &Layout, qemu: &Qemu) -> Result<()> {
    guest_says_garbage(layout, qemu)?;
    guest_reports_an_error(layout, qemu)?;
    run_times_out(layout, qemu)?;
    let folder = layout.bundles().join("bench-errors");
    fs::create_dir_all(&folder).context(|| format!("cannot create {}", folder.display()))?;
    no_plugins(layout, &folder)?;
    others_come_out(layout, qemu, &folder)
}

/// A peer that does not boot is named, and Turnstile's figure comes out.
pub fn broken_peer(layout: &Layout, qemu: &Qemu) -> Result<()> {
    let folder = layout.bundles().join("bench-errors");
    fs::create_dir_all(&folder).context(|| format!("cannot create {}", folder.display()))?;
    // Xen finds no kernel of its first domain: in the place of the device that loads it there is another.
    let script = format!(
        "n=$#\nwhile [ $n -gt 0 ]; do\n  a=$1; shift; n=$((n - 1))\n  \
         case \"$a\" in guest-loader,*) a=virtio-rng-pci;; esac\n  set -- \"$@\" \"$a\"\ndone\nexec '{}' \"$@\"\n",
        qemu.path.display()
    );
    let stand_in = write_script(&folder, "without-a-kernel", &script)?;
    let row = null_hypercall().name;
    let said = bench(layout, &stand_in, &["--subjects", "turnstile,xen", "--rows", row, "--json"])?;
    said.is(1, "null-hypercall on Xen: Xen panicked: ")?;
    let document = Document::parse(&said.output)?;
    let figure = |subject: Subject| document.figure(subject.name(), row).cloned().unwrap_or_default();
    match (figure(Subject::Turnstile).instructions, figure(Subject::Xen).error) {
        (Some(_), Some(error)) if error.contains("Xen panicked") => Ok(()),
        other => Err(Failure::failed(format!("the JSON has {other:?}"))),
    }
}

fn guest_says_garbage(layout: &Layout, qemu: &Qemu) -> Result<()> {
    let failure = fails(&Runner::new(layout, qemu, Isa::Arm64, FEWEST)?, &NO_ROW)?;
    expect(&failure, "the guest ended without its @bench line")?;
    // The details show what it wrote instead.
    expect(&failure, "@done beacons=")
}

fn guest_reports_an_error(layout: &Layout, qemu: &Qemu) -> Result<()> {
    let failure = fails(&Runner::new(layout, qemu, Isa::Arm64, 0)?, null_hypercall())?;
    expect(&failure, "the guest reports: iterations=0 measures nothing")
}

fn run_times_out(layout: &Layout, qemu: &Qemu) -> Result<()> {
    let runner = Runner::new(layout, qemu, Isa::Arm64, ENDLESS)?.with_limit(SHORT);
    expect(&fails(&runner, null_hypercall())?, "did not end within 3 s of processor time")
}

/// A QEMU that was built without plugins can measure nothing: that is said once, before anything runs.
fn no_plugins(layout: &Layout, folder: &Path) -> Result<()> {
    let script = "case \"$*\" in *-plugin*) echo 'plugin interface not enabled in this build' >&2; exit 1;; esac\n\
                  case \"$*\" in *'-machine help'*) echo 'virt   as QEMU lists it'; exit;; esac\n\
                  echo 'QEMU emulator version 10.0.2'\n";
    let stand_in = write_script(folder, "without-plugins", script)?;
    let said = bench(layout, &stand_in, &["--rows", "null-hypercall"])?;
    said.is(3, "has no plugin support")?;
    said.is(3, "plugin interface not enabled in this build")
}

/// One row's QEMU dies; the other row is in the JSON all the same.
fn others_come_out(layout: &Layout, qemu: &Qemu, folder: &Path) -> Result<()> {
    let real = qemu.path.display();
    let script =
        format!("case \"$*\" in *bench-1/*) echo 'it is broken' >&2; exit 3;; esac\nexec '{real}' \"$@\"\n");
    let stand_in = write_script(folder, "half-broken", &script)?;
    let said = bench(layout, &stand_in, &["--rows", "null-hypercall,id-register", "--json"])?;
    said.is(1, "id-register on Turnstile: QEMU ended with exit status: 3")?;
    said.is(1, "it is broken")?;
    said.is(1, "1 of 2 figures could not be measured")?;
    let document = Document::parse(&said.output)?;
    let figure = |row| document.figure(Subject::Turnstile.name(), row).cloned().unwrap_or_default();
    let (good, bad) = (figure("null-hypercall"), figure("id-register"));
    match (good.instructions, bad.instructions, bad.error) {
        (Some(_), None, Some(error)) if error.contains("QEMU ended with") => Ok(()),
        other => Err(Failure::failed(format!("the JSON has {other:?}"))),
    }
}

fn null_hypercall() -> &'static Row {
    &ROWS[0]
}

/// Runs a row that has to fail, and returns everything that is said about it.
fn fails(runner: &Runner<'_>, row: &'static Row) -> Result<String> {
    match runner.measure(&[Job::new(Subject::Turnstile, row)]).pop() {
        Some(Err(failure)) => Ok(failure.full()),
        _ => Err(Failure::failed(format!("{} was measured, which cannot be", row.name))),
    }
}

fn expect(said: &str, part: &str) -> Result<()> {
    match said.contains(part) {
        true => Ok(()),
        false => Err(Failure::failed(format!("expected `{part}`")).details(said)),
    }
}

fn write_script(folder: &Path, name: &str, body: &str) -> Result<PathBuf> {
    let path = folder.join(name);
    let doing = || format!("cannot write {}", path.display());
    fs::write(&path, format!("#!/bin/sh\n{body}")).context(doing)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).context(doing)?;
    Ok(path)
}

/// What the command said, and how it ended.
struct Said {
    code: Option<i32>,
    output: String,
    errors: String,
}

impl Said {
    fn is(&self, code: i32, part: &str) -> Result<()> {
        if self.code != Some(code) {
            let what = format!("expected exit code {code}, got {:?}", self.code);
            return Err(Failure::failed(what).details(&self.errors));
        }
        expect(&self.errors, part)
    }
}

/// Runs `turnstile bench` as a user does.
fn bench(layout: &Layout, qemu: &Path, arguments: &[&str]) -> Result<Said> {
    let mut command = tool::command(layout)?;
    command.arg("bench").args(arguments).arg("--qemu").arg(qemu);
    let output = command.output().context(|| "cannot run the tool".to_owned())?;
    Ok(Said {
        code: output.status.code(),
        output: String::from_utf8_lossy(&output.stdout).into_owned(),
        errors: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}
