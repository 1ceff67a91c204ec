// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `.ci/run`: which endings of the suite are good.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Runs it on a suite that prints these lines and ends with this code; returns its own code and last line.
fn run(lines: &str, code: u8) -> (i32, String) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.ci/run");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let [suite, runner] = ["x", ".ci/run"].map(|name| folder.path().join(name));
    fs::create_dir(folder.path().join(".ci")).expect("a folder");
    fs::copy(script, &runner).expect("the script");
    fs::write(&suite, format!("#!/bin/sh\ncat <<END\n{lines}\nEND\nexit {code}\n")).expect("a suite");
    fs::set_permissions(&suite, Permissions::from_mode(0o755)).expect("it is ours");
    let output = Command::new("bash").arg(runner).output().expect("bash");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.code().unwrap_or(-1), said.lines().last().unwrap_or_default().to_owned())
}

#[test]
fn a_good_suite_is_good() {
    let good = "1 passed, 0 failed, 0 skipped".to_owned();
    assert_eq!(run(&format!("PASS arm64/a (1 s)\n{good}"), 0), (0, good));
}

#[test]
fn a_required_platform_may_not_be_skipped() {
    let skipped = |name: &str| run(&format!("SKIP {name}: no\n0 passed, 0 failed, 1 skipped"), 0).0;
    for name in ["arm64/linux", "x86_64/linux", "x86_64/bochs", "power64/bench"] {
        assert_eq!(skipped(name), 1, "{name}");
    }
    assert_eq!(skipped("host/report"), 0);
}

#[test]
fn a_suite_that_fails_or_breaks_off_is_bad() {
    assert_eq!(run("0 passed, 1 failed, 0 skipped", 1).0, 1);
    assert_eq!(run("PASS arm64/a (1 s)", 0), (1, "0 passed, 1 failed, 0 skipped".to_owned()));
}
