// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `turnstile bench` with a saved run: nothing is measured here.

mod common;

use common::Folder;
use common::saved::{row, saved};
use predicates::prelude::PredicateBooleanExt as _;
use predicates::str::contains;
use serde_json::{Value, json};

fn folder() -> Folder {
    let folder = Folder::new();
    folder.write("run.json", saved().to_string().as_bytes());
    folder
}

fn bench(folder: &Folder, arguments: &[&str]) -> assert_cmd::assert::Assert {
    folder.turnstile().arg("bench").args(arguments).assert()
}

#[test]
fn platforms_and_targets_are_shown_beside_the_table() {
    let folder = folder();
    let mut run = saved();
    run["elsewhere"] = json!([row("turnstile", false, 57.0)]);
    run["elsewhere"][0]["platform"] = json!("raspi4b");
    let rows = run["rows"].as_array_mut().expect("rows");
    for (name, instructions) in [("sgi-to-1-of-32", 150.0), ("sgi-to-31-of-32", 152.0)] {
        rows.push(row("turnstile", false, instructions));
        rows.last_mut().expect("it was pushed")["row"] = json!(name);
    }
    folder.write("all.json", run.to_string().as_bytes());
    bench(&folder, &["--from", "all.json"])
        .success()
        .stdout(contains("Turnstile by platform").and(contains("raspi4b")).and(contains(" 57")))
        .stdout(contains("An SGI by its target").and(contains("31 of 32    152 █")));
    bench(&folder, &["--platform", "raspi4"]).code(2).stderr(contains("raspi4b"));
}

#[test]
fn a_saved_run_is_shown() {
    let folder = folder();
    bench(&folder, &["--from", "run.json"])
        .success()
        .stdout(contains("1364 (27.3×)").and(contains("KVM VHE *")).and(contains("They are not cycles")))
        .stdout(contains("6 + 5, 4").and(contains("Turnstile, KVM VHE: spectre_v2: BHB")))
        .stdout(contains("operations by class").not());
    bench(&folder, &["--from", "run.json", "--classes"])
        .success()
        .stdout(contains("isb").and(contains("exits")));
    bench(&folder, &["--from", "run.json", "--trace"])
        .success()
        .stdout(contains("null-hypercall on Turnstile: 2 instructions").and(contains("0x40200804  eret")));
}

#[test]
fn a_saved_run_stays_what_it_is() {
    let folder = folder();
    bench(&folder, &["--from", "run.json", "--save", "again.json"]).success();
    let again = std::fs::read_to_string(folder.path().join("again.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&again).unwrap(), saved());
    bench(&folder, &["--from", "again.json", "--json"]).success().stdout(again);
}

#[test]
fn files_that_are_no_saved_run() {
    let folder = folder();
    folder.write("old.json", b"{\"schema\": 1, \"rows\": []}");
    folder.write("other.json", b"[1, 2]");
    bench(&folder, &["--from", "missing.json"]).code(2).stderr(contains("cannot read missing.json"));
    bench(&folder, &["--from", "old.json"])
        .code(2)
        .stderr(contains("old.json: schema 1").and(contains("--save")));
    bench(&folder, &["--from", "other.json"]).code(2).stderr(contains("no saved run"));
}

#[test]
fn what_cannot_go_together_is_refused_before_any_work() {
    let folder = folder();
    for more in [["--subjects", "xen"], ["--rows", "self-sgi"], ["--iterations", "20000"], ["--qemu", "q"]] {
        bench(&folder, &["--from", "run.json", more[0], more[1]])
            .code(2)
            .stderr(contains("cannot be used with"));
    }
    bench(&folder, &["--from", "run.json", "--check"]).code(2);
    for more in
        ["--subjects=xen", "--from=run.json", "--html=a", "--weights=m", "--ablate", "--trace", "--qemu=q"]
    {
        bench(&folder, &["--native", more]).code(2).stderr(contains("cannot be used with"));
    }
    bench(&folder, &["--subjects", "kvm"]).code(2).stderr(contains("kvm-vhe"));
    bench(&folder, &["--subjects", "xen", "--rows", "io-user"])
        .code(2)
        .stderr(contains("none of the subjects"));
    bench(&folder, &["--subjects", "xen", "--check"]).code(2).stderr(contains("only Turnstile has budgets"));
    bench(&folder, &["--platform", "cortex-a57-gicv3", "--subjects", "xen"])
        .code(2)
        .stderr(contains("on cortex-a57-gicv3 Turnstile alone is measured"));
    bench(&folder, &["--platform", "cortex-a57-gicv3", "--ablate"])
        .code(2)
        .stderr(contains("cannot be used with"));
    bench(&folder, &["--from", "run.json", "--platform", "cortex-a57-gicv3"]).code(2);
    bench(&folder, &["--check", "--iterations", "20000"]).code(2).stderr(contains("leave --iterations out"));
    bench(&folder, &["--iterations", "1000"]).code(2).stderr(contains("16384"));
    for ablate in ["--ablate", "--ablate=fp-resident"] {
        bench(&folder, &["--statistics", ablate]).code(2).stderr(contains("cannot be used with"));
    }
    for mitigations in ["on", "loop:", "loop:0", "loop:1025"] {
        bench(&folder, &["--mitigations", mitigations]).code(2).stderr(contains("loop:K"));
    }
    for mitigations in ["loop:4", "fill+", "firmware"] {
        bench(&folder, &["--isa", "x86_64", "--mitigations", mitigations])
            .code(2)
            .stderr(contains("barrier"));
    }
    bench(&folder, &["--isa", "power64", "--mitigations", "loop:8"]).code(2).stderr(contains("assisted"));
    bench(&folder, &["--mitigations", "auto", "--subjects", "xen"])
        .code(2)
        .stderr(contains("only Turnstile's mitigations"));
    bench(&folder, &["--mitigations", "auto", "--check"]).code(2).stderr(contains("cannot be used with"));
    bench(&folder, &["--allow-raise"]).code(2);
    bench(&folder, &["--save", "no/such/folder.json"]).code(2).stderr(contains("its folder does not exist"));
}
