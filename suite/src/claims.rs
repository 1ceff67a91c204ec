// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Each promise of `SPECIFICATION.md` names tests that exist. How they are named there is said at its top.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use turnstile::cli::QemuChoice;
use turnstile::layout::Layout;

use super::checks;
use super::chosen::Chosen;
use crate::cli;

/// What says behind a test's name that only the long run has it.
const LONG: &str = " (long)";

/// What was named last: a name that says less is meant in the same place.
#[derive(Clone, Debug, Default)]
enum Place {
    #[default]
    None,
    /// Files with tests in Rust.
    Files(Vec<PathBuf>),
    /// A program of `guests/`.
    Guest(&'static str),
    /// The part of the suite's names before the last slash, perhaps without the architecture.
    Folder(String),
}

/// Everything that can be named.
struct Tests {
    root: PathBuf,
    suite: BTreeSet<String>,
    long: BTreeSet<String>,
}

impl Tests {
    fn read() -> Self {
        let layout = Layout::find().unwrap();
        let options = cli::Test { filter: None, list: true, long: true, qemu: QemuChoice { program: None } };
        let all = Chosen::by(&layout, &options).unwrap();
        let suite = all.names().map(str::to_owned).collect();
        let scenarios = all.scenarios.iter().filter(|scenario| scenario.long);
        let long = scenarios.map(|scenario| scenario.name.clone());
        let stages = all.stages.iter().filter(|stage| stage.long).map(|stage| stage.name.clone());
        let long = long.chain(stages).chain(checks::long().map(|check| check.name)).collect();
        Tests { root: layout.root().to_path_buf(), suite, long }
    }

    /// The names of the suite that a pattern means, with an architecture or for each.
    fn in_suite(&self, pattern: &str) -> Vec<&String> {
        let means = |name: &str| {
            let folder = format!("{}/", pattern.trim_end_matches('/'));
            matches(pattern, name) || name.starts_with(&folder)
        };
        let of_any = |name: &str| name.split_once('/').is_some_and(|(_, rest)| means(rest));
        let exactly: Vec<_> = self.suite.iter().filter(|name| means(name)).collect();
        if exactly.is_empty() { self.suite.iter().filter(|name| of_any(name)).collect() } else { exactly }
    }

    /// The files that a name means: a path, `crate/file` for a file of that crate's tests, or a crate.
    fn files(&self, name: &str) -> Vec<PathBuf> {
        let path = self.root.join(name);
        if path.is_file() {
            return vec![path];
        }
        if path.is_dir() {
            return sources(&path);
        }
        let (krate, file) = name.split_once('/').unwrap_or((name, ""));
        let layers = ["core", "arch"].map(|layer| self.root.join(layer).join(krate));
        let found = layers.iter().filter(|folder| folder.is_dir());
        match file {
            "" => found.flat_map(|folder| sources(folder)).collect(),
            file => found
                .map(|folder| folder.join("tests").join(format!("{file}.rs")))
                .filter(|path| path.is_file())
                .collect(),
        }
    }

    /// Finds the test of a code span; returns whether only the long run has it.
    fn find(&self, span: &str, place: &mut Place) -> Result<bool, String> {
        let missing = || format!("`{span}` names no test");
        if let Some((files, name)) = span.split_once(": ") {
            *place = Place::Files(self.files(files));
            return self.find(name, place);
        }
        for guest in ["selftest", "hostile"] {
            if let Some(name) = span.strip_prefix(guest).and_then(|rest| rest.strip_prefix(' ')) {
                *place = Place::Guest(guest);
                return self.find(name, place);
            }
        }
        let found = match &*place {
            Place::Files(files) => files.iter().any(|file| has_function(file, span)),
            Place::Guest(guest) => self.guest_has(guest, span),
            Place::Folder(folder) => !self.in_suite(&format!("{folder}/{span}")).is_empty(),
            Place::None => false,
        };
        if let (Place::Folder(folder), true) = (&*place, found) {
            return Ok(self.only_long(&format!("{folder}/{span}")));
        }
        if found {
            return Ok(false);
        }
        if !self.in_suite(span).is_empty() {
            let folder = span.trim_end_matches('/').rsplit_once('/').map_or("", |(folder, _)| folder);
            *place = Place::Folder(folder.to_owned());
            return Ok(self.only_long(span));
        }
        let files = self.files(span);
        if !files.iter().any(|file| has_tests(file)) {
            return Err(missing());
        }
        *place = Place::Files(files);
        Ok(false)
    }

    fn only_long(&self, pattern: &str) -> bool {
        self.in_suite(pattern).into_iter().all(|name| self.long.contains(name))
    }

    fn guest_has(&self, guest: &str, pattern: &str) -> bool {
        let folders = fs::read_dir(self.root.join("guests")).unwrap().flatten();
        folders.flat_map(|folder| sources(&folder.path().join("src/bin").join(guest))).any(|file| {
            let text = fs::read_to_string(file).unwrap();
            text.split('"').skip(1).step_by(2).any(|literal| matches(pattern, literal))
        })
    }
}

/// Whether a name fits a pattern, in which `*` stands for anything.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((before, after)) => name.strip_prefix(before).is_some_and(|rest| {
            (0..=rest.len()).any(|at| rest.get(at..).is_some_and(|rest| matches(after, rest)))
        }),
    }
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries
        .flat_map(|path| match path.is_dir() {
            true => sources(&path),
            false => vec![path],
        })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect()
}

fn has_tests(file: &Path) -> bool {
    let text = fs::read_to_string(file).unwrap();
    ["#[test]", "proptest!", "mod tests;"].iter().any(|sign| text.contains(sign))
}

/// Whether a file has a test of this name.
fn has_function(file: &Path, pattern: &str) -> bool {
    let text = fs::read_to_string(file).unwrap();
    let names = text.lines().filter_map(|line| line.trim().strip_prefix("fn ")?.split_once('('));
    let mut names = names.map(|(name, _)| name);
    has_tests(file) && names.any(|name| matches(pattern, name))
}

/// The spans of code in the last column of a row, each with what stands behind it.
fn spans(column: &str) -> impl Iterator<Item = (&str, &str)> {
    let parts: Vec<&str> = column.split('`').collect();
    (1..parts.len()).step_by(2).map(move |at| (parts[at], parts.get(at + 1).copied().unwrap_or("")))
}

/// What is wrong with the promises of a specification.
fn wrong(tests: &Tests, specification: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut place = Place::None;
    let rows = specification.lines().filter(|line| line.starts_with("| "));
    for row in rows.filter(|row| !row.starts_with("| id ") && !row.starts_with("|---")) {
        let columns: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        // The table of budgets has figures there.
        let (Some(id), Some(tests_of)) = (columns.first(), columns.get(2).filter(|_| columns.len() == 3))
        else {
            continue;
        };
        let mut count = 0;
        for (span, behind) in spans(tests_of) {
            count += 1;
            match tests.find(span, &mut place) {
                Err(what) => wrong.push(format!("{id}: {what}")),
                Ok(long) if long != behind.starts_with(LONG) => {
                    wrong.push(format!(
                        "{id}: `{span}` is {} marked{LONG}",
                        if long { "not" } else { "wrongly" }
                    ));
                }
                Ok(_) => {}
            }
        }
        if count == 0 {
            wrong.push(format!("{id}: names no test"));
        }
    }
    wrong
}

#[test]
fn every_promise_names_tests_that_exist() {
    let tests = Tests::read();
    let specification = fs::read_to_string(tests.root.join("SPECIFICATION.md")).unwrap();
    let wrong = wrong(&tests, &specification);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The identifiers that promises have, of which more than one has the same.
fn shared_ids(specification: &str) -> Vec<&str> {
    let ids =
        specification.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" |")).map(|(id, _)| id);
    let is_id = |id: &&str| {
        let (letter, number) = id.split_at_checked(1).unwrap_or_default();
        letter.starts_with(|letter: char| letter.is_ascii_uppercase()) && number.parse::<u32>().is_ok()
    };
    let mut seen = BTreeSet::new();
    ids.filter(is_id).filter(|id| !seen.insert(*id)).collect()
}

#[test]
fn a_promise_has_an_id_of_its_own() {
    let layout = Layout::find().unwrap();
    let specification = fs::read_to_string(layout.root().join("SPECIFICATION.md")).unwrap();
    assert_eq!(shared_ids(&specification), [""; 0]);
    let twice =
        "| id | promise |\n|---|---|\n| C1 | a |\n| C11 | b |\n| C1 | c |\n| row | d |\n| row | e |\n";
    assert_eq!(shared_ids(twice), ["C1"]);
}

#[test]
fn a_name_that_is_none_is_found() {
    let tests = Tests::read();
    let row = |column: &str| wrong(&tests, &format!("| X1 | It is so. | {column} |"));
    for good in [
        "`vgic/accesses: nothing_to_do_costs_nothing`; the same file: `a_timer_tick_is_one_write_and_no_read`",
        "`arm64/crash/stop`, `spin`; `sharing/equal`, `weights` of all architectures; `x86_64/hostile/`",
        "`selftest gic-sgi-storm`, `timer-*`; `hostile devices`; `core/firmware/tests` (all tests)",
        "`arm64/hour/pinned` (long)",
    ] {
        assert_eq!(row(good), [""; 0], "{good}");
    }
    for bad in [
        "`vgic/accesses: nothing_of_this_kind`",
        "`arm64/crash/stop`, `nothing`",
        "`arm64/nothing/*`",
        "`selftest nothing-of-this-kind`",
        "`vgic/nothing` (all tests)",
        "nothing",
        "`arm64/hour/pinned`",
        "`arm64/crash/stop` (long)",
    ] {
        assert_eq!(row(bad).len(), 1, "{bad}");
    }
}
