// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `./x test` and the suite's other commands say of themselves, and refuse.

use std::path::Path;
use std::process::{Command, Output};

fn suite(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_turnstile-suite"));
    command.env("TURNSTILE_ROOT", Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    command.args(arguments).output().expect("it is built")
}

fn said(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn help_is_there() {
    for arguments in [
        &["--help"][..],
        &["test", "--help"],
        &["mutants", "--help"],
        &["lines", "--help"],
        &["help", "test"],
    ] {
        let output = suite(arguments);
        assert!(output.status.success());
        let text = said(&output.stdout);
        assert!(text.contains("Usage: ./x ") && text.contains("Exit codes"), "{text}");
    }
}

#[test]
fn mistakes_are_refused() {
    for (arguments, complaint) in [
        (&["test", "--filter", "no-such-test"][..], "--list --long all names"),
        (&["tset"], "'test'"),
        (&["test", "--sample", "3"], "--sample"),
    ] {
        let output = suite(arguments);
        assert_eq!(output.status.code(), Some(2));
        let text = said(&output.stderr);
        assert!(text.contains(complaint), "{text}");
    }
}
