// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The stages that run on this machine: formatting, lints, and the crates' own tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use turnstile::failure::Result;
use turnstile::isa::Isa;
use turnstile::layout::{Layout, write_atomically};
use turnstile::setup::{chromium, rust};

use super::report::{Counts, Verdict};
use super::{engine, layers};

/// A stage on this machine: mostly cargo does it.
pub struct Stage {
    /// Its name.
    pub name: String,
    arguments: Vec<String>,
    flags: Option<&'static str>,
    /// A bare machine that rustc does not know: for this one cargo builds the core library, too.
    bare: Option<Isa>,
    program: Option<Program>,
    /// Whether cargo runs tests, which are counted one by one.
    tests: bool,
    /// What is done instead, without cargo, with the checkout.
    check: Option<Check>,
}

/// Looks at a checkout; the error says what is wrong with it.
type Check = fn(&Path) -> std::result::Result<(), String>;

/// A program that tests need.
struct Program {
    /// The variable that tells them where it is.
    variable: &'static str,
    /// Finds it, or installs it.
    ensure: fn(&Layout) -> Result<PathBuf>,
}

impl Stage {
    fn new(name: &str, arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        Stage {
            name: format!("host/{name}"),
            arguments,
            flags: None,
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

    fn tests(mut self) -> Self {
        self.tests = true;
        self
    }
}

/// The package of what runs in Linux guests, on all architectures.
const LINUX_GUESTS: &str = "turnstile-guests-linux";

/// The stages in the order in which they fail soonest.
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
    let mut bare_clippy = vec!["clippy", "--quiet"];
    bare_clippy.extend(bare);
    bare_clippy.extend(["--", "-D", "warnings"]);
    let mut pc_clippy = vec!["clippy", "--quiet", "--target", Isa::X86_64.target()];
    pc_clippy.extend(["--package", "turnstile-hypervisor", "--package", Isa::X86_64.guests_package()]);
    pc_clippy.extend(["--package", LINUX_GUESTS]);
    pc_clippy.extend(["--", "-D", "warnings"]);
    let mut power_clippy = vec!["clippy", "--quiet"];
    power_clippy.extend(["--package", "turnstile-hypervisor", "--package", Isa::Power64.guests_package()]);
    power_clippy.extend(["--package", LINUX_GUESTS]);
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
        Stage::new("clippy-bare-metal-power64", &power_clippy).on(Isa::Power64),
        Stage::new("clippy-ablation", &ablation_clippy),
        Stage::new("clippy-bare-metal-ablation", &bare_ablation_clippy),
        Stage::new("clippy-monitor", &monitor_clippy(Isa::Arm64)),
        Stage::new("clippy-monitor-power64", &monitor_clippy(Isa::Power64)),
        Stage::new("package", &package),
        Stage::new("tests", &["test", "--no-fail-fast"]).tests(),
        Stage::new("tests-ablation", &ablation_tests).tests(),
    ];
    stages.extend(loom_crates(layout.root()).iter().map(|name| loom(name, &[])));
    let browser = ["test", "--package", "turnstile", "--test", "browser", "--no-fail-fast"];
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
fn loom(package: &str, more: &[&str]) -> Stage {
    let arguments = [&["test", "--release", "--package", package, "--test", "loom"], more].concat();
    let stage = Stage::new(&format!("loom-{}", package.trim_start_matches("turnstile-")), &arguments);
    Stage { flags: Some("--cfg loom"), ..stage.tests() }
}

/// The stages for the Rust tests that have this in their name: what `--filter` means if it names nothing of the suite.
pub fn named(layout: &Layout, name: &str) -> Vec<Stage> {
    let mut stages: Vec<Stage> = Vec::new();
    for file in sources_with_test(layout.root(), name) {
        let Some(package) = package_of(&file) else { continue };
        let of_loom = |path: &Path| path.ends_with("tests/loom") || path.ends_with("tests/loom.rs");
        let stage = if file.ancestors().take(2).any(of_loom) {
            loom(&package, &["--", name])
        } else if file.with_extension("").components().any(|part| part.as_os_str() == "naive") {
            let features = format!("{package}/ablation");
            Stage::new("tests-ablation", &["test", "--package", &package, "--features", &features, name])
                .tests()
        } else {
            let stage = format!("tests-{}", package.trim_start_matches("turnstile-"));
            Stage::new(&stage, &["test", "--package", &package, name]).tests()
        };
        if stages.iter().all(|other| other.arguments != stage.arguments) {
            stages.push(stage);
        }
    }
    stages
}

/// The sources below the crates' folders that have a test whose name begins so.
fn sources_with_test(root: &Path, name: &str) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> =
        ["arch", "core", "hypervisor", "meter", "peers", "suite", "tool"].map(|name| root.join(name)).into();
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs")
                && fs::read_to_string(&path).is_ok_and(|source| has_test(&source, name))
            {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Says whether a source has a test whose name begins so. Other functions do not count.
fn has_test(source: &str, name: &str) -> bool {
    let functions = source.split("#[test]").skip(1).filter_map(|behind| behind.split_once("fn "));
    functions.into_iter().any(|(_, function)| function.starts_with(name))
}

/// The name of the package that a source belongs to.
fn package_of(file: &Path) -> Option<String> {
    let manifest = file.ancestors().map(|folder| folder.join("Cargo.toml")).find(|path| path.is_file())?;
    let manifest: toml::Table = fs::read_to_string(manifest).ok()?.parse().ok()?;
    Some(manifest.get("package")?.get("name")?.as_str()?.to_owned())
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

/// Runs a stage; without the program that it needs it is skipped.
pub fn run(layout: &Layout, stage: &Stage) -> (Counts, Verdict) {
    if let Some(check) = stage.check {
        let verdict = Verdict::from(check(layout.root()));
        return (Counts::of(&verdict), verdict);
    }
    let mut cargo: Command = rust::cargo(layout);
    cargo.args(&stage.arguments).env("CARGO_TERM_COLOR", "never");
    if let Some(isa) = stage.bare {
        rust::Target::bare(isa).apply(&mut cargo);
        cargo.args(["--", "-D", "warnings"]);
    }
    match stage.flags {
        // Other flags mean another build of everything: it gets a folder of its own.
        Some(flags) => cargo.env("RUSTFLAGS", flags).env("CARGO_TARGET_DIR", layout.target().join("loom")),
        None => cargo.env("CARGO_TARGET_DIR", layout.target()),
    };
    if let Some(Program { variable, ensure }) = &stage.program {
        match ensure(layout) {
            Ok(program) => cargo.env(variable, program),
            Err(failure) => {
                let skipped = Counts { skipped: 1, ..Counts::default() };
                return (skipped, Verdict::Skipped(failure.to_string()));
            }
        };
    }
    let output = match cargo.output() {
        Ok(output) => output,
        Err(error) => return (Counts::failed(), Verdict::Failed(format!("cargo does not start: {error}"))),
    };
    let mut said = String::from_utf8_lossy(&output.stdout).into_owned();
    said.push_str(&String::from_utf8_lossy(&output.stderr));
    let _ = write_atomically(&engine::log_file(layout, &stage.name), said.as_bytes());
    let mut counts = if stage.tests { count(&said) } else { Counts::default() };
    if output.status.success() {
        if !stage.tests {
            counts.passed += 1;
        } else if counts == Counts::default() {
            return (Counts::failed(), Verdict::Failed("no test ran".to_owned()));
        }
        return (counts, Verdict::Passed);
    }
    if counts.failed == 0 {
        // It did not even build.
        counts.failed = 1;
    }
    (counts, Verdict::Failed(reason(&said)))
}

/// Adds up cargo's lines "test result: ok. 3 passed; 0 failed; 1 ignored; …".
fn count(said: &str) -> Counts {
    let mut counts = Counts::default();
    for line in said.lines().filter(|line| line.starts_with("test result: ")) {
        let number = |what: &str| -> usize {
            let before = line.split(what).next().unwrap_or_default().trim_end();
            before.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
        };
        counts.passed += number("passed;");
        counts.failed += number("failed;");
        counts.skipped += number("ignored;");
    }
    counts
}

/// The names of the tests that failed, or the first error; the end of the log is shown with it.
fn reason(said: &str) -> String {
    let failed: Vec<&str> =
        said.lines().filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED")).collect();
    if !failed.is_empty() {
        return failed.join(", ");
    }
    said.lines().find(|line| line.starts_with("error")).unwrap_or("it ended with an error").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_found_by_its_name() {
        let layout = Layout::find().unwrap();
        let arguments = |name: &str| -> Vec<String> {
            named(&layout, name).iter().map(|stage| stage.arguments.join(" ")).collect()
        };
        let own = "a_test_is_found_by_its_name";
        assert_eq!(arguments(own), [format!("test --package turnstile-suite {own}")]);
        let loom = "two_vcpus_that_ask_each_other_do_not_deadlock";
        assert_eq!(arguments(loom), [format!("test --release --package turnstile-vm --test loom -- {loom}")]);
        let part = "a_startup_comes_with_the_code_at_its_page";
        assert_eq!(arguments(part), [format!("test --release --package turnstile-vm --test loom -- {part}")]);
        let naive = "what_goes_out_comes_back_from_memory";
        let features = "--features turnstile-arm64/ablation";
        assert_eq!(arguments(naive), [format!("test --package turnstile-arm64 {features} {naive}")]);
        assert!(arguments(&["no", "such", "test"].join("_")).is_empty());
    }

    #[test]
    fn only_tests_have_names_that_are_found() {
        let source = "fn word() {}\n#[test]\n#[should_panic]\nfn test() { other() }\nfn other() {}\n";
        assert!(has_test(source, "test") && has_test(source, "te"));
        assert!(!has_test(source, "word") && !has_test(source, "other") && !has_test(source, "st"));
        assert!(!has_test("fn word() {}", "word"));
    }

    #[test]
    fn adds_up_the_results_of_all_crates() {
        let said = "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\nother\n\
                    test a::b ... FAILED\n\
                    test result: FAILED. 40 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out\n";
        assert_eq!(count(said), Counts { passed: 43, failed: 2, skipped: 1 });
        assert_eq!(reason(said), "a::b");
        assert_eq!(reason("error: no\n"), "error: no");
        assert_eq!(
            reason("  Compiling\nerror[E0425]: what\nerror: could not compile\n"),
            "error[E0425]: what"
        );
        assert_eq!(reason("Diff in a.rs:1:\n \n"), "it ended with an error");
    }
}
