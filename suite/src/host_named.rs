// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The stages for Rust tests that are given by name.

use std::fs;
use std::path::{Path, PathBuf};

use turnstile::layout::Layout;

use super::host::{Stage, loom};

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
}
