// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `turnstile bench --html` and `--weights` with a saved run; tests/browser looks at the page.

mod common;

use common::Folder;
use predicates::prelude::PredicateBooleanExt as _;
use predicates::str::contains;

const FIXTURE: &str = include_str!("data/bench.json");
const MODEL: &str = "name = \"m\"\nisa = \"arm64\"\ncpu = \"none\"\nsource = \"a test\"\n\
                     [class.instructions]\ncycles = 2\nsource = \"a test\"\n";

fn bench(folder: &Folder, arguments: &[&str]) -> assert_cmd::assert::Assert {
    folder.turnstile().args(["bench", "--from", "run.json"]).args(arguments).assert()
}

fn folder() -> Folder {
    let folder = Folder::new();
    folder.write("run.json", FIXTURE.as_bytes());
    folder
}

#[test]
fn a_page_is_written_beside_the_table() {
    let folder = folder();
    let said = contains("the report is in report.html");
    bench(&folder, &["--html", "report.html"]).success().stdout(contains("They are not cycles")).stderr(said);
    let page = std::fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"));
    assert!(!page.contains("id=\"cycles\""), "nothing is estimated unless it is asked for");
    bench(&folder, &["--html", "again.html"]).success();
    assert_eq!(std::fs::read_to_string(folder.path().join("again.html")).unwrap(), page);
}

#[test]
fn runs_of_several_architectures_are_one_page() {
    let folder = folder();
    let mut power: serde_json::Value = serde_json::from_str(FIXTURE).unwrap();
    power["isa"] = "power64".into();
    folder.write("power.json", power.to_string().as_bytes());
    bench(&folder, &["--from", "power.json", "--html", "report.html"]).success();
    let page = std::fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert!(page.contains("id=\"figures\"") && page.contains("id=\"figures-power64\""));
    bench(&folder, &["--from", "power.json", "--json"]).code(2).stderr(contains("one architecture"));
    bench(&folder, &["--from", "run.json", "--html", "twice.html"])
        .code(2)
        .stderr(contains("two runs of arm64"));
}

#[test]
fn estimates_are_in_the_page_and_in_the_json() {
    let folder = folder();
    folder.write("m.toml", MODEL.as_bytes());
    let output = bench(&folder, &["--weights", "m.toml", "--json", "--html", "report.html"])
        .success()
        .get_output()
        .clone();
    let run: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(run["rows"][0]["cycles"]["total"], 96.0);
    assert_eq!(run["weights"]["name"], "m");
    let page = std::fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert!(page.contains("id=\"cycles\"") && page.contains("a model, not a measurement"));
}

#[test]
fn mistakes_are_told_before_anything_is_written() {
    let folder = folder();
    let help = |text: &'static str| contains(text).and(contains("help"));
    folder.write("typo.toml", MODEL.replace("class.instructions", "class.instruction").as_bytes());
    bench(&folder, &["--weights", "typo.toml", "--html", "report.html"])
        .code(2)
        .stdout("")
        .stderr(help("did you mean `instructions`?"));
    folder.write("other.toml", MODEL.replace("arm64", "x86_64").as_bytes());
    bench(&folder, &["--weights", "other.toml", "--html", "report.html"])
        .code(2)
        .stdout("")
        .stderr(help("x86_64"));
    bench(&folder, &["--weights", "missing.toml"]).code(2).stderr(help("missing.toml"));
    bench(&folder, &["--html", "no/such/report.html"]).code(2).stdout("").stderr(contains("does not exist"));
    assert!(!folder.path().join("report.html").exists());
}
