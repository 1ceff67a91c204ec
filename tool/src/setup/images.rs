// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Builds what runs on the emulated machines: the hypervisor, the guests of `guests/` and
//! what runs in Linux guests, and the monitor for Linux KVM.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use object::{Object, ObjectSection};

use super::last_lines;
use super::rust::{self, Target};
use super::service;
use crate::failure::{Context, Failure, Result};
use crate::isa::Isa;
use crate::layout::{Layout, write_atomically};
use crate::meter::symbols::Symbols;
use crate::ui;

const PROFILE: &str = "image";
const HYPERVISOR: &str = "turnstile-hypervisor";
const METER: &str = "turnstile-meter";
const TOOL: &str = "turnstile";
const VMM: &str = "turnstile-vmm";
const WORK_PACKAGE: &str = "turnstile-guests-linux";
const WORK: &str = "work";

/// The packages that this process has built already: asking cargo again would only cost time.
static BUILT: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Builds the hypervisor's image and returns its path.
pub fn hypervisor(layout: &Layout, isa: Isa) -> Result<PathBuf> {
    hypervisor_with(layout, isa, &[])
}

/// Builds the hypervisor with cargo features and returns its image's path. It is built apart from the usual one,
/// so that neither makes cargo build the other anew.
pub fn hypervisor_with(layout: &Layout, isa: Isa, features: &[&str]) -> Result<PathBuf> {
    provide(layout, layout.hypervisor(isa, features), |image| {
        let with = match features {
            [] => String::new(),
            features => format!(" with {}", features.join(", ")),
        };
        let what = format!("building the hypervisor for {isa}{with}");
        build(layout, HYPERVISOR, &Target::bare(isa), features, codegen(isa), &what)?;
        reduce(layout, &program_with(layout, isa, features), image, isa.image_options())
    })
}

/// Builds the images of all guests of an architecture.
pub fn guests(layout: &Layout, isa: Isa) -> Result<()> {
    if layout.is_installed() {
        return Ok(());
    }
    let (package, target) = (isa.guests_package(), Target::bare(isa));
    once(package, || {
        build(layout, package, &target, &[], &[], &format!("building the guests for {isa}"))?;
        let image = |name: &String| {
            reduce(layout, &built(layout, &target, name), &layout.guest(isa, name), isa.image_options())
        };
        layout.guest_names(isa).iter().try_for_each(image)
    })
}

/// Builds a program of `services/` for an architecture and returns the path of its image.
pub fn service(layout: &Layout, isa: Isa, name: &str) -> Result<PathBuf> {
    provide(layout, layout.service(isa, name), |image| {
        let options = service_options(layout, isa);
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let what = format!("building the service {name} for {isa}");
        build(layout, &service_package(name), &Target::anywhere(isa), &[], &options, &what)?;
        let program = service_program(layout, isa, name);
        let file = fs::read(&program).context(|| format!("cannot read {}", program.display()))?;
        let flat = service::flatten(&file).map_err(|why| failed(&what, &why))?;
        write_atomically(image, &flat)
    })
}

/// How programs of `services/` are compiled and linked.
fn service_options(layout: &Layout, isa: Isa) -> Vec<String> {
    const LINKED: [&str; 6] = [
        "-pie",
        "--no-dynamic-linker",
        "-znorelro",
        "-zmax-page-size=4096",
        "-zstack-size=16384",
        "--build-id=none",
    ];
    let script = layout.root().join("services/runtime/link.ld");
    let mut options = vec![format!("-Clink-arg=-T{}", script.display())];
    options.extend(LINKED.map(|argument| format!("-Clink-arg={argument}")));
    options.extend(codegen(isa).iter().map(|&option| option.to_owned()));
    options
}

/// A program of `services/` with its symbols, where [`service`] was built from sources.
pub fn service_program(layout: &Layout, isa: Isa, name: &str) -> PathBuf {
    built(layout, &Target::anywhere(isa), name)
}

/// Where a program of `services/` copies bytes of guests, if it does, as it is linked, where [`service`] was built from sources.
pub fn copy_of_service(layout: &Layout, isa: Isa, name: &str) -> Result<Option<Range<u64>>> {
    let program = service_program(layout, isa, name);
    let doing = || format!("cannot read {}", program.display());
    let bytes = fs::read(&program).context(doing)?;
    let file = object::File::parse(&*bytes).context(doing)?;
    let section = file.section_by_name(".copy").filter(|section| section.size() != 0);
    Ok(section.map(|section| section.address()..section.address() + section.size()))
}

/// The package of a program of `services/`.
pub fn service_package(name: &str) -> String {
    format!("turnstile-service-{name}")
}

/// Builds the monitor for Linux KVM and returns its path.
pub fn vmm(layout: &Layout, isa: Isa) -> Result<PathBuf> {
    provide(layout, layout.vmm(isa), |program| {
        let what = format!("building the monitor for Linux KVM on {isa}");
        let target = Target::linux(layout, isa)?;
        build(layout, VMM, &target, &[], &[], &what)?;
        reduce(layout, &built(layout, &target, VMM), program, &["--strip-all"])
    })
}

/// Builds the program that works in Linux guests and returns its path. It makes its system calls itself, so it is built as for
/// the bare machine.
pub fn work(layout: &Layout, isa: Isa) -> Result<PathBuf> {
    provide(layout, layout.work(isa), |program| {
        let what = format!("building the program for Linux guests on {isa}");
        let target = Target::bare(isa);
        build(layout, WORK_PACKAGE, &target, &[], &[], &what)?;
        reduce(layout, &built(layout, &target, WORK), program, &["--strip-all"])
    })
}

/// Returns a file, which a package has, or has not; in a checkout it is built, once by this process.
fn provide(layout: &Layout, file: PathBuf, build: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    if !layout.is_installed() {
        once(&file.to_string_lossy(), || build(&file))?;
    } else if !file.is_file() {
        return Err(Failure::missing(format!("the package has no {}", file.display()))
            .help("what is compared with other hypervisors is built in a checkout: use ./x there"));
    }
    Ok(file)
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
    provide(layout, layout.meter(), |_| release(layout, METER, "building the meter"))
}

/// Builds the tool for those who have no checkout, and returns its path.
pub fn tool(layout: &Layout) -> Result<PathBuf> {
    release(layout, TOOL, "building the tool for others")?;
    Ok(layout.release().join(TOOL))
}

/// Builds one of this machine's packages with optimizations.
fn release(layout: &Layout, package: &str, what: &str) -> Result<()> {
    let mut cargo = rust::cargo(layout);
    cargo.args(["build", "--release", "--package", package, "--target-dir"]).arg(layout.target());
    let step = ui::Step::start(what);
    with_progress(&mut cargo, &step).map_err(|said| failed(what, &said))?;
    step.done();
    Ok(())
}

/// The hypervisor's program with its symbols, for a debugger.
pub fn program(layout: &Layout, isa: Isa) -> PathBuf {
    program_with(layout, isa, &[])
}

/// The program of [`hypervisor_with`] with its symbols.
pub fn program_with(layout: &Layout, isa: Isa, features: &[&str]) -> PathBuf {
    if layout.is_installed() {
        return layout.packaged_program(isa, features);
    }
    let target = Target::bare(isa);
    folder_for(layout, &target, features).join(target.name()).join(PROFILE).join(HYPERVISOR)
}

/// Where the first instruction of [`hypervisor_with`] runs on QEMU's own boards.
pub fn entry(layout: &Layout, isa: Isa, features: &[&str]) -> Result<u64> {
    match isa {
        // The image's alignment above the beginning of RAM.
        Isa::Arm64 => Ok(0x4020_0000),
        // Where skiboot puts a payload, and the image's head in its file.
        Isa::Power64 => Ok(0x2001_0000),
        Isa::X86_64 => {
            let symbols = Symbols::from_elf(&program_with(layout, isa, features))?;
            let entry = symbols.address("turnstile_pvh_entry");
            entry.ok_or_else(|| Failure::failed("the hypervisor's image has no entry for PVH"))
        }
    }
}

/// Where cargo works on what has these features.
fn folder_for(layout: &Layout, target: &Target, features: &[&str]) -> PathBuf {
    let folder = target.folder(layout);
    match features {
        [] => folder,
        features => folder.join("variants").join(features.join("-")),
    }
}

/// Where cargo puts a program.
fn built(layout: &Layout, target: &Target, name: &str) -> PathBuf {
    target.folder(layout).join(target.name()).join(PROFILE).join(name)
}

/// What the compiler is told of the hypervisor and of services. All that such an image for arm64 links lies within 1 MiB, which the
/// linker checks, so an address is one instruction; guests have stacks that do not fit.
const fn codegen(isa: Isa) -> &'static [&'static str] {
    match isa {
        Isa::Arm64 => &["-Ccode-model=tiny"],
        Isa::X86_64 | Isa::Power64 => &[],
    }
}

/// Builds one package for a target, with these options of the compiler for its program, showing what cargo does.
fn build(
    layout: &Layout,
    package: &str,
    target: &Target,
    features: &[&str],
    codegen: &[&str],
    what: &str,
) -> Result<()> {
    let mut cargo = rust::cargo(layout);
    cargo.args([
        if codegen.is_empty() { "build" } else { "rustc" },
        "--package",
        package,
        "--profile",
        PROFILE,
    ]);
    target.apply(&mut cargo);
    cargo.arg("--target-dir").arg(folder_for(layout, target, features));
    if !features.is_empty() {
        cargo.args(["--features", &features.join(",")]);
    }
    if !codegen.is_empty() {
        cargo.arg("--").args(codegen);
    }
    let step = ui::Step::start(what);
    with_progress(&mut cargo, &step).map_err(|said| failed(what, &said))?;
    step.done();
    Ok(())
}

/// What cargo failed to do, with what it said of it, and what helps.
fn failed(what: &str, said: &str) -> Failure {
    let failure = Failure::failed(format!("{what} failed")).details(last_lines(said, 40));
    match advice(said) {
        Some(advice) => failure.help(advice),
        None => failure,
    }
}

/// What helps when cargo says this: without the crates, and without the toolchain.
fn advice(said: &str) -> Option<&'static str> {
    let says = |signs: &[&str]| signs.iter().any(|sign| said.contains(sign));
    if says(&["using offline mode (--offline)", "but --offline was specified"]) {
        return Some(
            "cargo may not use the network, which it needs once for crates: unset CARGO_NET_OFFLINE",
        );
    }
    if says(&["spurious network error", "failed to download from `https://"]) {
        return Some("cargo needs the network once, to download crates; behind a proxy, set https_proxy");
    }
    let toolchain = says(&["target may not be installed", "rustup"]);
    toolchain.then_some("run `./x` from the checkout: it installs what rust-toolchain.toml names")
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

/// Makes the file that is used out of a program with its symbols, if that is newer than the present one.
fn reduce(layout: &Layout, program: &Path, image: &Path, options: &[&str]) -> Result<()> {
    let modified = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    if modified(image).is_some() && modified(image) > modified(program) {
        return Ok(());
    }
    let folder = image.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).context(|| format!("cannot create {}", folder.display()))?;
    let temporary = image.with_extension(format!("{}", std::process::id()));
    super::run(Command::new(rust::objcopy(layout)?).args(options).arg(program).arg(&temporary))?;
    fs::rename(&temporary, image).context(|| format!("cannot write {}", image.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[ignore = "builds for all architectures"]
    fn services_are_built() {
        let layout = Layout::find().unwrap();
        for isa in Isa::ALL {
            for name in layout.service_names() {
                service(&layout, isa, &name).unwrap();
            }
        }
    }

    #[test]
    fn what_cargo_misses_is_said() {
        let helps = |said: &str, expected: &str| advice(said).is_some_and(|advice| advice.contains(expected));
        assert!(helps(
            "error: no matching package\nyou're using offline mode (--offline)",
            "CARGO_NET_OFFLINE"
        ));
        assert!(helps("warning: spurious network error (3 tries remaining): [7]", "https_proxy"));
        assert!(helps("note: the target may not be installed", "./x"));
        assert_eq!(advice("error[E0308]: mismatched types"), None);
    }
}
