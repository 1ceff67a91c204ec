// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The stages that run on this machine: formatting, lints, and the crates' own tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Counts, Verdict, engine};
use crate::failure::Result;
use crate::isa::Isa;
use crate::layout::{Layout, write_atomically};
use crate::setup::{chromium, rust};

/// A stage that cargo does.
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
}

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

/// The stages in the order in which they fail soonest.
pub fn stages(layout: &Layout) -> Vec<Stage> {
    let bare = [
        "--package",
        "turnstile-hypervisor",
        "--package",
        Isa::Arm64.guests_package(),
        "--target",
        Isa::Arm64.target(),
    ];
    let mut bare_clippy = vec!["clippy", "--quiet"];
    bare_clippy.extend(bare);
    bare_clippy.extend(["--", "-D", "warnings"]);
    let mut pc_clippy = vec!["clippy", "--quiet", "--target", Isa::X86_64.target()];
    pc_clippy.extend(["--package", "turnstile-hypervisor", "--package", Isa::X86_64.guests_package()]);
    pc_clippy.extend(["--", "-D", "warnings"]);
    let mut power_clippy = vec!["clippy", "--quiet"];
    power_clippy.extend(["--package", "turnstile-hypervisor", "--package", Isa::Power64.guests_package()]);
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
    let monitor = ["--package", "turnstile-vmm", "--target", Isa::Arm64.linux_target()];
    let mut monitor_clippy = vec!["clippy", "--quiet"];
    monitor_clippy.extend(monitor);
    monitor_clippy.extend(["--", "-D", "warnings"]);
    let mut stages = vec![
        Stage::new("format", &["fmt", "--all", "--check"]),
        Stage::new("clippy", &["clippy", "--quiet", "--all-targets", "--", "-D", "warnings"]),
        Stage::new("clippy-browser", &["clippy", "--quiet", "--test", "browser", "--", "-D", "warnings"]),
        Stage::new("clippy-bare-metal", &bare_clippy),
        Stage::new("clippy-bare-metal-x86_64", &pc_clippy),
        Stage::new("clippy-bare-metal-power64", &power_clippy).on(Isa::Power64),
        Stage::new("clippy-ablation", &ablation_clippy),
        Stage::new("clippy-bare-metal-ablation", &bare_ablation_clippy),
        Stage::new("clippy-monitor", &monitor_clippy),
        Stage::new("tests", &["test", "--no-fail-fast"]).tests(),
        Stage::new("tests-ablation", &ablation_tests).tests(),
    ];
    for name in loom_crates(layout.root()) {
        let arguments = ["test", "--release", "--package", &name, "--test", "loom"];
        let stage = Stage::new(&format!("loom-{}", name.trim_start_matches("turnstile-")), &arguments);
        stages.push(Stage { flags: Some("--cfg loom"), ..stage.tests() });
    }
    let browser = ["test", "--package", "turnstile", "--test", "browser", "--no-fail-fast"];
    let program = Program { variable: "TURNSTILE_CHROMIUM", ensure: chromium::ensure };
    stages.push(Stage { program: Some(program), ..Stage::new("report", &browser).tests() });
    stages
}

/// The packages that have loom tests.
fn loom_crates(root: &Path) -> Vec<String> {
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
