// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs a stage on this machine, and counts what cargo says.

use std::io::Read;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use turnstile::layout::{Layout, write_atomically};
use turnstile::setup::rust;
use turnstile::usage;

use super::host::{Program, Stage};
use super::log::log_file;
use super::report::{Counts, Verdict};

/// With so many preemptions of threads loom checks models in the usual run.
const FEW_PREEMPTIONS: &str = "3";

/// What a stage found, and the processor time of cargo and what it ran.
pub type Outcome = (Counts, Verdict, Option<Duration>);

/// Runs a stage; without the program that it needs it is skipped.
pub fn run(layout: &Layout, stage: &Stage) -> Outcome {
    if let Some(check) = stage.check {
        let verdict = Verdict::from(check(layout.root()));
        return (Counts::of(&verdict), verdict, None);
    }
    let mut cargo: Command = rust::cargo(layout);
    cargo.args(&stage.arguments).env("CARGO_TERM_COLOR", "never").env("CARGO_TARGET_DIR", layout.target());
    if let Some(isa) = stage.bare {
        let target = rust::Target::bare(isa);
        target.apply(&mut cargo);
        cargo.args(["--", "-D", "warnings"]).env("CARGO_TARGET_DIR", target.folder(layout));
    }
    if let Some(flags) = stage.flags {
        // Other flags mean another build of everything: it gets a folder of its own.
        cargo.env("RUSTFLAGS", flags).env("CARGO_TARGET_DIR", layout.target().join("loom"));
    }
    if stage.few_preemptions {
        cargo.env("LOOM_MAX_PREEMPTIONS", FEW_PREEMPTIONS);
    }
    if let Some(Program { variable, ensure }) = &stage.program {
        match ensure(layout) {
            Ok(program) => cargo.env(variable, program),
            Err(failure) => {
                let skipped = Counts { skipped: 1, ..Counts::default() };
                return (skipped, Verdict::Skipped(failure.to_string()), None);
            }
        };
    }
    let (status, said, used) = match listen(&mut cargo) {
        Ok(ended) => ended,
        Err(error) => {
            return (Counts::failed(), Verdict::Failed(format!("cargo does not start: {error}")), None);
        }
    };
    let _ = write_atomically(&log_file(layout, &stage.name), said.as_bytes());
    let (counts, verdict) = judge(stage, status, &said);
    (counts, verdict, Some(used))
}

/// Runs cargo; returns what it wrote, its errors behind the rest.
fn listen(cargo: &mut Command) -> std::io::Result<(ExitStatus, String, Duration)> {
    let mut child = cargo.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (output, errors) = (child.stdout.take(), child.stderr.take());
    let errors = std::thread::spawn(move || read(errors));
    let mut said = read(output);
    said.push_str(&errors.join().unwrap_or_default());
    let (status, used) = usage::wait(&mut child)?;
    Ok((status, said, used))
}

fn read(pipe: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    // What could be read until then is what there is.
    let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Counts what cargo said.
fn judge(stage: &Stage, status: ExitStatus, said: &str) -> (Counts, Verdict) {
    let mut counts = if stage.tests { count(said) } else { Counts::default() };
    if status.success() {
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
    (counts, Verdict::Failed(reason(said)))
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
