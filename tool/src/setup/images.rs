// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Builds the bare-metal images: the hypervisor and the guests of `guests/`.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use super::{last_lines, rust};
use crate::failure::{Context, Failure, Result};
use crate::layout::Layout;
use crate::ui;

/// The target of everything that runs on the arm64 machine.
pub const TARGET: &str = "aarch64-unknown-none-softfloat";
const PROFILE: &str = "image";
const HYPERVISOR: &str = "turnstile-hypervisor";
const GUESTS: &str = "turnstile-guests";
const METER: &str = "turnstile-meter";

/// The packages that this process has built already: asking cargo again would only cost time.
static BUILT: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Builds the hypervisor's image and returns its path.
pub fn hypervisor(layout: &Layout) -> Result<PathBuf> {
    let image = layout.hypervisor();
    once(HYPERVISOR, || {
        build(layout, HYPERVISOR, &[], layout.target(), "building the hypervisor")?;
        flatten(layout, &program(layout), &image)
    })?;
    Ok(image)
}

/// Builds the hypervisor with cargo features and returns its image's path. It is built apart from the usual one,
/// so that neither makes cargo build the other anew.
pub fn hypervisor_with(layout: &Layout, features: &[&str]) -> Result<PathBuf> {
    if features.is_empty() {
        return hypervisor(layout);
    }
    let variant = features.join("-");
    let image = layout.images().join(format!("turnstile-arm64-{variant}.image"));
    once(&format!("{HYPERVISOR} {variant}"), || {
        let what = format!("building the hypervisor with {}", features.join(", "));
        build(layout, HYPERVISOR, features, &variant_target(layout, features), &what)?;
        flatten(layout, &program_with(layout, features), &image)
    })?;
    Ok(image)
}

/// The program of [`hypervisor_with`] with its symbols.
pub fn program_with(layout: &Layout, features: &[&str]) -> PathBuf {
    match features {
        [] => program(layout),
        features => variant_target(layout, features).join(TARGET).join(PROFILE).join(HYPERVISOR),
    }
}

fn variant_target(layout: &Layout, features: &[&str]) -> PathBuf {
    layout.target().join("variants").join(features.join("-"))
}

/// Builds the images of all guests.
pub fn guests(layout: &Layout) -> Result<()> {
    once(GUESTS, || {
        build(layout, GUESTS, &[], layout.target(), "building the guests")?;
        let folder = layout.target().join(TARGET).join(PROFILE);
        layout
            .guest_names()
            .iter()
            .try_for_each(|name| flatten(layout, &folder.join(name), &layout.guest(name)))
    })
}

/// Does something for a package unless it is done; other threads wait meanwhile.
fn once(package: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    if !built.contains(package) {
        work()?;
        built.insert(package.to_owned());
    }
    Ok(())
}

/// Builds the meter, QEMU's plugin, and returns its path.
pub fn meter(layout: &Layout) -> Result<PathBuf> {
    once(METER, || {
        let mut cargo = rust::cargo(layout);
        cargo.args(["build", "--release", "--package", METER, "--target-dir"]).arg(layout.target());
        let step = ui::Step::start("building the meter");
        with_progress(&mut cargo, &step)
            .map_err(|said| Failure::failed("building the meter failed").details(last_lines(&said, 40)))?;
        step.done();
        Ok(())
    })?;
    Ok(layout.target().join("release").join("libturnstile_meter.so"))
}

/// The hypervisor's program with its symbols, for a debugger.
pub fn program(layout: &Layout) -> PathBuf {
    layout.target().join(TARGET).join(PROFILE).join(HYPERVISOR)
}

/// Builds one package for the bare machine, showing what cargo does.
fn build(layout: &Layout, package: &str, features: &[&str], target: &Path, what: &str) -> Result<()> {
    let mut cargo = rust::cargo(layout);
    cargo.args(["build", "--package", package, "--target", TARGET, "--profile", PROFILE]);
    cargo.arg("--target-dir").arg(target);
    if !features.is_empty() {
        cargo.args(["--features", &features.join(",")]);
    }
    let step = ui::Step::start(what);
    with_progress(&mut cargo, &step).map_err(|said| {
        let failure = Failure::failed(format!("{what} failed")).details(last_lines(&said, 40));
        if said.contains("target may not be installed") || said.contains("rustup") {
            failure.help("run `./x` from the checkout: it installs what rust-toolchain.toml names")
        } else {
            failure
        }
    })?;
    step.done();
    Ok(())
}

/// Runs cargo with its lines shown as the step's detail; on failure returns all it wrote.
pub fn with_progress(cargo: &mut Command, step: &ui::Step) -> std::result::Result<(), String> {
    let spawned = cargo.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut child = spawned.map_err(|error| format!("cannot start cargo: {error} (is rustup installed?)"))?;
    let mut said = String::new();
    if let Some(stderr) = child.stderr.take() {
        for line in BufReader::new(stderr).lines().map_while(std::result::Result::ok) {
            step.detail(line.trim());
            said.push_str(&line);
            said.push('\n');
        }
    }
    match child.wait() {
        Ok(status) if status.success() => Ok(()),
        _ => Err(said),
    }
}

/// Makes the flat binary that a boot loader takes, if the program is newer than the present one.
fn flatten(layout: &Layout, program: &Path, image: &Path) -> Result<()> {
    let modified = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    if modified(image).is_some() && modified(image) > modified(program) {
        return Ok(());
    }
    let folder = image.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).context(|| format!("cannot create {}", folder.display()))?;
    let temporary = image.with_extension(format!("{}", std::process::id()));
    super::run(Command::new(rust::objcopy(layout)?).args(["-O", "binary"]).arg(program).arg(&temporary))?;
    fs::rename(&temporary, image).context(|| format!("cannot write {}", image.display()))
}
