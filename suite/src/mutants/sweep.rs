// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo-mutants` over the crates that are tested on the host.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Resource, Rlimit};
use serde::Deserialize;
use turnstile::failure::{Context, Failure, Result};
use turnstile::layout::Layout;
use turnstile::setup::{self, rust};
use turnstile::ui;

use super::tried::{Fate, Tried};
use crate::cli;

/// The version whose options and results are known.
const VERSION: &str = "27.1.0";
/// How long the tests of a mutant may take, in seconds: a package's take a minute on a busy machine.
const PATIENCE: u32 = 300;
/// Memory that cargo and the tests may take, in bytes: there are mutants that take all there is.
const MEMORY: u64 = 8 << 30;
/// Exit codes that say that mutants were tried: all caught, some missed, some that did not end.
const TRIED: [i32; 3] = [0, 2, 3];

/// The part of its results that is used.
#[derive(Debug, Deserialize)]
struct Outcomes {
    outcomes: Vec<Outcome>,
}

#[derive(Debug, Deserialize)]
struct Outcome {
    scenario: Scenario,
    summary: String,
}

#[derive(Debug, Deserialize)]
enum Scenario {
    Baseline,
    Mutant { package: String, name: String },
}

/// Tries a sample of the packages that are asked for, or all mutants.
pub fn attempt(layout: &Layout, options: &cli::Mutants) -> Result<Vec<Tried>> {
    let output = layout.target().join("mutants");
    fs::create_dir_all(&output).context(|| format!("cannot create {}", output.display()))?;
    let mut mutants = command(layout, options)?;
    ui::note(
        "each mutant is a build and a run of its package's tests: this takes minutes, and hours with --all",
    );
    // For who is started from here on, too. It fails where less is allowed already.
    let limit = Rlimit { current: Some(MEMORY), maximum: Some(MEMORY) };
    let _ = rustix::process::setrlimit(Resource::As, limit);
    let status = mutants.arg("--output").arg(&output).status().context(|| "cannot start cargo".into())?;
    if !status.code().is_some_and(|code| TRIED.contains(&code)) {
        return Err(Failure::failed(format!("cargo-mutants ended with {status}")));
    }
    let file = output.join("mutants.out/outcomes.json");
    let text = fs::read_to_string(&file).context(|| format!("cannot read {}", file.display()))?;
    outcomes(&text)
}

/// What could be tried.
pub fn list(layout: &Layout, options: &cli::Mutants) -> Result<Vec<String>> {
    let names = setup::run(command(layout, options)?.arg("--list"))?;
    Ok(String::from_utf8_lossy(&names.stdout).lines().map(str::to_owned).collect())
}

/// cargo-mutants for the packages and the sample that are asked for.
fn command(layout: &Layout, options: &cli::Mutants) -> Result<Command> {
    let program = ensure(layout)?;
    let packages = match options.package.is_empty() {
        true => packages(layout)?,
        false => options.package.clone(),
    };
    let mut mutants = rust::cargo(layout);
    mutants.arg("mutants").env("PATH", path_with(&program)?).args(["--no-shuffle", "--colors", "never"]);
    mutants.args(packages.iter().flat_map(|package| ["--package", package]));
    mutants.args(["--timeout", &PATIENCE.to_string()]);
    if !options.all {
        mutants.args(["--sharding", "round-robin", "--shard", &format!("0/{}", options.sample)]);
    }
    Ok(mutants)
}

/// What became of the mutants of a run.
fn outcomes(text: &str) -> Result<Vec<Tried>> {
    let Outcomes { outcomes } = serde_json::from_str(text).map_err(unknown)?;
    let tried = outcomes.into_iter().filter_map(|outcome| match outcome.scenario {
        Scenario::Baseline => None,
        Scenario::Mutant { package, name } => Some(Tried {
            package,
            what: name,
            fate: match outcome.summary.as_str() {
                "CaughtMutant" | "Timeout" => Fate::Caught,
                "MissedMutant" => Fate::Survived,
                _ => Fate::Unviable,
            },
        }),
    });
    Ok(tried.collect())
}

fn unknown(error: serde_json::Error) -> Failure {
    Failure::failed(format!("cargo-mutants says what is not understood: {error}"))
}

/// The packages whose tests run on the host.
fn packages(layout: &Layout) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for layer in ["core", "arch"] {
        let folder = layout.root().join(layer);
        let entries = fs::read_dir(&folder).context(|| format!("cannot read {}", folder.display()))?;
        for manifest in entries.flatten().map(|entry| entry.path().join("Cargo.toml")) {
            let Ok(text) = fs::read_to_string(&manifest) else { continue };
            let table: toml::Table =
                text.parse().map_err(|error| Failure::failed(format!("{}: {error}", manifest.display())))?;
            let name = table.get("package").and_then(|package| package.get("name")?.as_str());
            names.extend(name.map(str::to_owned));
        }
    }
    names.sort();
    Ok(names)
}

/// Finds cargo-mutants, or builds it into the build products.
fn ensure(layout: &Layout) -> Result<PathBuf> {
    let root = layout.target().join("tools");
    let program = root.join("bin/cargo-mutants");
    if program.is_file() {
        return Ok(program);
    }
    if let Some(program) = setup::find_program("cargo-mutants") {
        return Ok(program);
    }
    let step = ui::Step::start("building cargo-mutants");
    let mut cargo = rust::cargo(layout);
    cargo
        .args(["install", "--quiet", "--locked", "--version", VERSION, "cargo-mutants", "--root"])
        .arg(&root);
    setup::run(&mut cargo).map_err(|failure| {
        failure.missing_prerequisite().help("the network is needed once, for crates.io")
    })?;
    step.done();
    Ok(program)
}

/// `PATH` with the program's folder first, where cargo looks for its commands.
fn path_with(program: &Path) -> Result<std::ffi::OsString> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = program.parent().map(Path::to_path_buf).into_iter().chain(std::env::split_paths(&path));
    std::env::join_paths(folders).map_err(|error| Failure::failed(format!("PATH is odd: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_read() {
        let text = r#"{"outcomes": [
            {"scenario": "Baseline", "summary": "Success"},
            {"scenario": {"Mutant": {"package": "p", "name": "a", "file": "x"}}, "summary": "CaughtMutant"},
            {"scenario": {"Mutant": {"package": "p", "name": "b"}}, "summary": "MissedMutant"},
            {"scenario": {"Mutant": {"package": "q", "name": "c"}}, "summary": "Timeout"},
            {"scenario": {"Mutant": {"package": "q", "name": "d"}}, "summary": "Unviable"}
        ], "total_mutants": 4}"#;
        let fates: Vec<(String, Fate)> =
            outcomes(text).unwrap().into_iter().map(|tried| (tried.what, tried.fate)).collect();
        let expected =
            [("a", Fate::Caught), ("b", Fate::Survived), ("c", Fate::Caught), ("d", Fate::Unviable)];
        assert_eq!(fates, expected.map(|(what, fate)| (what.to_owned(), fate)));
        assert!(outcomes("{}").is_err());
    }
}
