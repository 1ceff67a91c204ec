// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The stages that run on this machine: formatting, lints, and the crates' own tests. `host_named` has those for a few tests by
//! name, `host_run` runs them.

use std::fs;
use std::path::{Path, PathBuf};

use turnstile::failure::Result;
use turnstile::isa::Isa;
use turnstile::layout::Layout;
use turnstile::setup::{chromium, images};

use super::layers;

/// A stage on this machine: mostly cargo does it.
pub struct Stage {
    /// Its name.
    pub name: String,
    /// What cargo is told.
    pub arguments: Vec<String>,
    /// Flags for rustc.
    pub flags: Option<&'static str>,
    /// Whether its models are checked with few preemptions only, which finds nearly all and takes a twentieth of the time.
    pub few_preemptions: bool,
    /// Whether it runs beside those of the usual target folder, in one of its own: it leaves a processor to them most of the time.
    pub beside: bool,
    /// Whether only the long run has it.
    pub long: bool,
    /// A bare machine that rustc does not know: for this one cargo builds the core library, too.
    pub bare: Option<Isa>,
    /// What its tests need.
    pub program: Option<Program>,
    /// Whether cargo runs tests, which are counted one by one.
    pub tests: bool,
    /// What is done instead, without cargo, with the checkout.
    pub check: Option<Check>,
}

/// Looks at a checkout; the error says what is wrong with it.
pub type Check = fn(&Path) -> std::result::Result<(), String>;

/// A program that tests need.
pub struct Program {
    /// The variable that tells them where it is.
    pub variable: &'static str,
    /// Finds it, or installs it.
    pub ensure: fn(&Layout) -> Result<PathBuf>,
}

impl Stage {
    /// Makes a stage that cargo does.
    pub fn new(name: &str, arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        Stage {
            name: format!("host/{name}"),
            arguments,
            flags: None,
            few_preemptions: false,
            beside: false,
            long: false,
            bare: None,
            program: None,
            tests: false,
            check: None,
        }
    }

    /// For this architecture's bare machine, with warnings as errors.
    fn on(mut self, isa: Isa) -> Self {
        self.bare = Some(isa);
        self
    }

    /// Runs it beside others.
    fn beside(self) -> Self {
        Stage { beside: true, ..self }
    }

    /// Leaves it to the long run.
    fn long(self) -> Self {
        Stage { long: true, ..self }
    }

    /// Has its tests counted.
    pub fn tests(mut self) -> Self {
        self.tests = true;
        self
    }
}

/// The package of what runs in Linux guests, on all architectures.
const LINUX_GUESTS: &str = "turnstile-guests-linux";

/// The stages. Those that run one after the other are in the order in which they fail soonest.
pub fn stages(layout: &Layout) -> Vec<Stage> {
    let bare = [
        "--package",
        "turnstile-hypervisor",
        "--package",
        Isa::Arm64.guests_package(),
        "--package",
        LINUX_GUESTS,
        "--target",
        Isa::Arm64.target(),
    ];
    let services: Vec<String> =
        layout.service_names().iter().map(|name| images::service_package(name)).collect();
    let services: Vec<&str> = services.iter().flat_map(|package| ["--package", package]).collect();
    let mut bare_clippy = vec!["clippy", "--quiet"];
    bare_clippy.extend(bare);
    bare_clippy.extend(&services);
    bare_clippy.extend(["--", "-D", "warnings"]);
    let mut pc_clippy = vec!["clippy", "--quiet", "--target", Isa::X86_64.target()];
    pc_clippy.extend(["--package", "turnstile-hypervisor", "--package", Isa::X86_64.guests_package()]);
    pc_clippy.extend(["--package", LINUX_GUESTS]);
    pc_clippy.extend(&services);
    pc_clippy.extend(["--", "-D", "warnings"]);
    let mut power_clippy = vec!["clippy", "--quiet"];
    power_clippy.extend(["--package", "turnstile-hypervisor", "--package", Isa::Power64.guests_package()]);
    power_clippy.extend(["--package", LINUX_GUESTS]);
    power_clippy.extend(&services);
    let ablation = ["--package", "turnstile-arm64", "--features", "turnstile-arm64/ablation"];
    let mut ablation_clippy = vec!["clippy", "--quiet", "--all-targets"];
    ablation_clippy.extend(ablation);
    ablation_clippy.extend(["--", "-D", "warnings"]);
    let mut ablation_tests = vec!["test", "--no-fail-fast"];
    ablation_tests.extend(ablation);
    let bare_ablation = ["--features", "turnstile-hypervisor/ablation", "--package", "turnstile-hypervisor"];
    let mut bare_ablation_clippy = vec!["clippy", "--quiet", "--target", Isa::Arm64.target()];
    bare_ablation_clippy.extend(bare_ablation);
    bare_ablation_clippy.extend(["--", "-D", "warnings"]);
    let monitor_clippy = |isa: Isa| {
        [
            "clippy",
            "--quiet",
            "--package",
            "turnstile-vmm",
            "--target",
            isa.linux_target(),
            "--",
            "-D",
            "warnings",
        ]
    };
    let mut package = vec!["package", "--quiet", "--allow-dirty", "--target-dir", "target/package"];
    let for_others = for_others(layout.root());
    package.extend(for_others.iter().flat_map(|name| ["--package", name]));
    let mut stages = vec![
        Stage::new("format", &["fmt", "--all", "--check"]),
        Stage { check: Some(layers::check), ..Stage::new("layers", &[]) },
        Stage::new("clippy", &["clippy", "--quiet", "--all-targets", "--", "-D", "warnings"]),
        Stage::new("clippy-browser", &["clippy", "--quiet", "--test", "browser", "--", "-D", "warnings"]),
        Stage::new("clippy-bare-metal", &bare_clippy),
        Stage::new("clippy-bare-metal-x86_64", &pc_clippy),
        Stage::new("clippy-bare-metal-power64", &power_clippy).on(Isa::Power64).long(),
        Stage::new("clippy-ablation", &ablation_clippy).long(),
        Stage::new("clippy-bare-metal-ablation", &bare_ablation_clippy).long(),
        Stage::new("clippy-monitor", &monitor_clippy(Isa::Arm64)).long(),
        Stage::new("clippy-monitor-power64", &monitor_clippy(Isa::Power64)).long(),
        Stage::new(
            "fuzz",
            &["check", "--quiet", "--manifest-path", "fuzz/Cargo.toml", "--target-dir", "target/fuzz"],
        )
        .long(),
        Stage::new("package", &package).beside().long(),
        Stage::new("tests", &["test", "--no-fail-fast"]).tests(),
        Stage::new("tests-ablation", &ablation_tests).tests(),
    ];
    stages.extend(loom_crates(layout.root()).iter().map(|name| loom(name, &[])));
    // Without the package's name: one package alone wants fewer features of others, and cargo would build those again.
    let browser = ["test", "--test", "browser", "--no-fail-fast"];
    let chromium = |layout: &Layout| chromium::PROGRAM.ensure(layout, chromium::look);
    let program = Program { variable: "TURNSTILE_CHROMIUM", ensure: chromium };
    stages.push(Stage { program: Some(program), ..Stage::new("report", &browser).tests() });
    stages
}

/// The packages that others can use, which are those that may be published.
fn for_others(root: &Path) -> Vec<String> {
    let core = fs::read_dir(root.join("core")).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut names: Vec<String> =
        core.chain([root.join("meter")]).filter_map(|folder| published(&folder)).collect();
    names.sort();
    names
}

/// The name of the package in a folder, if it may be published.
fn published(folder: &Path) -> Option<String> {
    let manifest: toml::Table = fs::read_to_string(folder.join("Cargo.toml")).ok()?.parse().ok()?;
    let package = manifest.get("package")?;
    let may_be = package.get("publish")?.as_bool()?;
    may_be.then(|| package.get("name")?.as_str().map(str::to_owned)).flatten()
}

/// The loom tests of a package.
pub fn loom(package: &str, more: &[&str]) -> Stage {
    let arguments = [&["test", "--release", "--package", package, "--test", "loom"], more].concat();
    let stage = Stage::new(&format!("loom-{}", package.trim_start_matches("turnstile-")), &arguments);
    Stage { flags: Some("--cfg loom"), ..stage.tests().beside() }
}

/// The packages that have loom tests.
pub fn loom_crates(root: &Path) -> Vec<String> {
    let folders =
        ["core", "arch"].iter().flat_map(|folder| fs::read_dir(root.join(folder)).into_iter().flatten());
    let mut names: Vec<String> = folders
        .flatten()
        .filter(|entry| entry.path().join("tests/loom.rs").is_file())
        .map(|entry| format!("turnstile-{}", entry.file_name().to_string_lossy()))
        .collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_of_all_packages_share_what_is_built() {
        let layout = Layout::find().unwrap();
        for name in ["host/clippy", "host/clippy-browser", "host/tests", "host/report"] {
            let stages = stages(&layout);
            let stage = stages.iter().find(|stage| stage.name == name).unwrap();
            assert!(!stage.arguments.iter().any(|argument| argument == "--package"), "{name}");
        }
    }
}
