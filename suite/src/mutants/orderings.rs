// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Weaker orderings: each acquire and release of a crate with loom tests is made relaxed, and each fence is taken out, in a copy
//! of the checkout. The model checker has to find what that breaks.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use turnstile::failure::{Context, Failure, Result};
use turnstile::layout::Layout;
use turnstile::setup::{self, rust};
use turnstile::ui;

use super::tried::{Fate, Tried};
use crate::cli;
use crate::host::loom_crates;

/// The orderings that can be weaker.
const STRONG: [&str; 4] = ["Acquire", "Release", "AcqRel", "SeqCst"];
/// A mutant is caught, too, if the tests take so many times what they take without it, and so much longer at least: a
/// protocol that waits for ever.
const PATIENCE: u32 = 8;
const PATIENCE_AT_LEAST: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_millis(100);

/// One change.
#[derive(Debug, PartialEq, Eq)]
struct Mutant {
    /// The file, from the checkout on.
    file: PathBuf,
    /// Its line, from 1.
    line: usize,
    /// What the line becomes.
    text: String,
}

/// The packages with loom tests that are asked for.
fn packages(layout: &Layout, options: &cli::Mutants) -> Vec<String> {
    let wanted = |name: &String| options.package.is_empty() || options.package.contains(name);
    loom_crates(layout.root()).into_iter().filter(wanted).collect()
}

/// What could be tried.
pub fn list(layout: &Layout, options: &cli::Mutants) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for package in packages(layout, options) {
        names.extend(of_package(layout.root(), &package)?.iter().map(Mutant::shown));
    }
    Ok(names)
}

/// Tries all of the packages that are asked for.
pub fn attempt(layout: &Layout, options: &cli::Mutants) -> Result<Vec<Tried>> {
    let tree = layout.target().join("mutants/tree");
    let mut tried = Vec::new();
    for package in packages(layout, options) {
        // A copy for each: what was changed for the last one is gone, whatever happened.
        copy(layout, &tree)?;
        let mutants = of_package(&tree, &package)?;
        let step = ui::Step::start_counted(format!("weaker orderings of {package}"), mutants.len() as u64);
        let begin = Instant::now();
        if !matches!(run(layout, &tree, &package, None)?, Some(true)) {
            return Err(Failure::failed(format!("the loom tests of {package} fail as they are")));
        }
        let limit = (begin.elapsed() * PATIENCE).max(PATIENCE_AT_LEAST);
        for mutant in mutants {
            step.detail(mutant.shown());
            let fate = mutant.apply(&tree, || run(layout, &tree, &package, Some(limit)))?;
            tried.push(Tried { package: package.clone(), what: mutant.shown(), fate });
            step.advance();
        }
        step.done();
    }
    Ok(tried)
}

impl Mutant {
    fn shown(&self) -> String {
        format!("{}:{}: {}", self.file.display(), self.line, self.text.trim())
    }

    /// Makes the change, tests, and takes it back.
    fn apply(&self, tree: &Path, test: impl FnOnce() -> Result<Option<bool>>) -> Result<Fate> {
        let path = tree.join(&self.file);
        let text = read(&path)?;
        let lines = text.lines().enumerate();
        let changed: Vec<&str> =
            lines.map(|(at, line)| if at + 1 == self.line { self.text.as_str() } else { line }).collect();
        write(&path, &(changed.join("\n") + "\n"))?;
        let result = test();
        write(&path, &text)?;
        Ok(match result? {
            None => Fate::Unviable,
            Some(true) => Fate::Survived,
            Some(false) => Fate::Caught,
        })
    }
}

/// The changes of a package's sources.
fn of_package(tree: &Path, package: &str) -> Result<Vec<Mutant>> {
    let name = package.trim_start_matches("turnstile-");
    let layers = ["core", "arch"].map(|layer| tree.join(layer).join(name).join("src"));
    let mut mutants = Vec::new();
    for entry in layers.iter().filter(|folder| folder.is_dir()).flat_map(walkdir::WalkDir::new) {
        let entry = entry.map_err(|error| Failure::failed(error.to_string()))?;
        if entry.path().extension().is_some_and(|extension| extension == "rs") {
            let file = entry.path().strip_prefix(tree).unwrap_or(entry.path()).to_path_buf();
            let text = read(entry.path())?;
            mutants.extend(of_source(&text).into_iter().map(|(line, text)| Mutant {
                file: file.clone(),
                line,
                text,
            }));
        }
    }
    mutants.sort_by(|one, other| (&one.file, one.line).cmp(&(&other.file, other.line)));
    Ok(mutants)
}

/// The changes of a source, up to its tests: the line, and what it becomes.
fn of_source(text: &str) -> Vec<(usize, String)> {
    let mut changes = Vec::new();
    let code = text.lines().take_while(|line| !line.starts_with("#[cfg(test)]"));
    for (at, line) in code.enumerate() {
        let trimmed = line.trim_start();
        if trimmed.starts_with("//") || trimmed.starts_with("use ") {
            continue;
        }
        if trimmed.starts_with("fence(Ordering::") {
            changes.push((at + 1, String::new()));
            continue;
        }
        for strong in STRONG {
            let word = format!("Ordering::{strong}");
            changes.extend(line.match_indices(&word).map(|(from, _)| {
                let (before, rest) = line.split_at(from);
                (at + 1, format!("{before}Ordering::Relaxed{}", rest.strip_prefix(&word).unwrap_or(rest)))
            }));
        }
    }
    changes
}

/// Copies what git knows of the checkout, as it is now.
fn copy(layout: &Layout, tree: &Path) -> Result<()> {
    let mut git = Command::new("git");
    git.current_dir(layout.root()).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let output = setup::run(&mut git)?;
    for name in String::from_utf8_lossy(&output.stdout).split('\0').filter(|name| !name.is_empty()) {
        let (from, to) = (layout.root().join(name), tree.join(name));
        let Ok(new) = fs::read(&from) else { continue };
        // What is the same keeps its date, and cargo what it built of it.
        if fs::read(&to).is_ok_and(|old| old == new) {
            continue;
        }
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder).context(|| format!("cannot create {}", folder.display()))?;
        }
        fs::write(&to, new).context(|| format!("cannot write {}", to.display()))?;
    }
    Ok(())
}

/// Runs the loom tests of a package in the copy: whether they pass, and nothing if they do not compile.
fn run(layout: &Layout, tree: &Path, package: &str, limit: Option<Duration>) -> Result<Option<bool>> {
    let cargo = |more: &[&str]| {
        let mut cargo = rust::cargo(layout);
        cargo.current_dir(tree).args([
            "test",
            "--quiet",
            "--release",
            "--package",
            package,
            "--test",
            "loom",
        ]);
        cargo
            .args(more)
            .env("RUSTFLAGS", "--cfg loom")
            .env("CARGO_TARGET_DIR", layout.target().join("mutants/loom"));
        cargo.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        cargo
    };
    let start = || "cannot start cargo".to_owned();
    if !cargo(&["--no-run"]).status().context(start)?.success() {
        return Ok(None);
    }
    // A group of their own, so that the test ends with cargo.
    let mut child = cargo(&[]).process_group(0).spawn().context(start)?;
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait().context(start)? {
            return Ok(Some(status.success()));
        }
        if limit.is_some_and(|limit| begin.elapsed() > limit) {
            if let Some(group) = Pid::from_raw(child.id() as i32) {
                let _ = rustix::process::kill_process_group(group, Signal::KILL);
            }
            let _ = child.wait();
            return Ok(Some(false));
        }
        std::thread::sleep(TICK);
    }
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).context(|| format!("cannot read {}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_ordering_is_weakened_by_itself() {
        let source = "use Ordering::Acquire;\n// Ordering::SeqCst\nlet _ = x.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire);\n\
                      \x20   fence(Ordering::SeqCst);\nx.load(Ordering::Relaxed);\n#[cfg(test)]\nx.load(Ordering::Acquire);\n";
        let changes = of_source(source);
        let weaker = |success, failure| {
            (3, format!("let _ = x.compare_exchange(0, 1, Ordering::{success}, Ordering::{failure});"))
        };
        assert_eq!(changes, [weaker("AcqRel", "Relaxed"), weaker("Relaxed", "Acquire"), (4, String::new())]);
    }

    #[test]
    fn a_change_is_taken_back() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.rs");
        fs::write(&file, "one\ntwo\n").unwrap();
        let mutant = Mutant { file: "a.rs".into(), line: 2, text: "three".to_owned() };
        let seen = || {
            assert_eq!(fs::read_to_string(&file).unwrap(), "one\nthree\n");
            Ok(Some(true))
        };
        assert_eq!(mutant.apply(folder.path(), seen).unwrap(), Fate::Survived);
        assert_eq!(fs::read_to_string(&file).unwrap(), "one\ntwo\n");
        assert_eq!(mutant.apply(folder.path(), || Ok(None)).unwrap(), Fate::Unviable);
    }
}
