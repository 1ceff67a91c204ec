// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `turnstile meter`: what it refuses, before anything is built or run.

mod common;

use std::path::PathBuf;
use std::process::Command;

use common::Folder;
use predicates::prelude::*;
use predicates::str::contains;

/// Makes a program that prints a text, whatever it is asked.
fn program(folder: &Folder, says: &str) -> PathBuf {
    // Written by another process: a test that forks meanwhile would hold the file open, and it could not be started.
    let write = "printf '%s\\n' '#!/bin/sh' \"echo '$1'\" >program && chmod +x program";
    let mut shell = Command::new("sh");
    shell.args(["-c", write, "sh", says]).current_dir(folder.path());
    assert!(shell.status().unwrap().success());
    folder.path().join("program")
}

#[test]
fn a_program_that_is_not_there() {
    let folder = Folder::new();
    let mut command = folder.turnstile();
    command.args(["meter", "--", "qemu-system-nothing"]);
    command
        .assert()
        .code(3)
        .stderr(contains("cannot find the program qemu-system-nothing").and(contains("help: ")));
}

#[test]
fn a_program_that_is_not_qemu() {
    let folder = Folder::new();
    let other = program(&folder, "hello");
    let mut command = folder.turnstile();
    command.args(["meter", "--"]).arg(&other);
    command.assert().code(2).stderr(contains("is not QEMU"));
}

#[test]
fn a_qemu_without_plugins() {
    let folder = Folder::new();
    let qemu = program(&folder, "QEMU emulator version 10.0.2");
    let mut command = folder.turnstile();
    command.args(["meter", "--"]).arg(&qemu);
    command.assert().code(3).stderr(contains("cannot load plugins").and(contains("--enable-plugins")));
}

#[test]
fn wrong_arguments() {
    let folder = Folder::new();
    let qemu = program(&folder, "QEMU emulator version 10.0.2");
    for (arguments, code, complaint) in [
        (["--guest", "0x10-0x10"], 2, "the end is not above the start"),
        (["--guest", "16-32"], 2, "expected two addresses like"),
        (["--symbols", "nothing.map"], 2, "cannot read symbols from nothing.map"),
        (["--symbols", "program"], 2, "program has no code symbols"),
    ] {
        let mut command = folder.turnstile();
        command.arg("meter").args(arguments).arg("--").arg(&qemu);
        command.assert().code(code).stderr(contains(complaint));
    }
    folder.turnstile().arg("meter").assert().code(2).stderr(contains("QEMU"));
}
