// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `turnstile run` in a pipe, with a stand-in for QEMU.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use common::{Folder, fake_qemu};
use predicates::prelude::*;
use predicates::str::{contains, starts_with};

#[test]
fn one_vm_powers_off() {
    Folder::with_vms(&["one"])
        .run("poweroff")
        .assert()
        .success()
        .stdout("hello from one\r\n")
        .stderr(contains("turnstile: Turnstile, a stand-in"))
        .stderr(contains("turnstile: one: powered off"));
}

#[test]
fn several_vms_have_their_names_before_each_line() {
    let folder = Folder::with_vms(&["one", "two"]);
    folder.run("poweroff").assert().success().stdout("one| hello from one\ntwo| hello from two\n");
}

#[test]
fn what_qemu_is_told() {
    let folder = Folder::with_vms(&["one", "two"]);
    let file = folder.path().join("arguments");
    let mut command = folder.run("poweroff");
    command.env("FAKE_QEMU_ARGUMENTS", &file).args(["--gdb", "--qemu-arg", "-d", "--qemu-arg", "int"]);
    command.assert().success();
    let told = fs::read_to_string(file).unwrap();
    for words in ["virt,virtualization=on,gic-version=3", "-smp\n2", "-cpu\nmax", "-append\nlink=framed"] {
        assert!(told.contains(words), "{told}");
    }
    assert!(told.contains("-gdb\ntcp:127.0.0.1:1234\n-S"), "{told}");
    assert!(told.ends_with("-d\nint"), "{told}");
}

#[test]
fn crash_of_a_guest() {
    Folder::with_vms(&["one"])
        .run("crash")
        .assert()
        .code(1)
        .stderr(contains("one: the guest jumped to nowhere"))
        .stderr(contains("one: crashed"));
}

#[test]
fn fault_of_the_hypervisor() {
    Folder::with_vms(&["one"]).run("fault").assert().code(1).stderr(contains("page fault at 0x10"));
}

#[test]
fn qemu_fails() {
    Folder::with_vms(&["one"])
        .run("die")
        .assert()
        .code(1)
        .stderr(contains("QEMU ended early").and(contains("| qemu: it is broken")));
}

#[test]
fn input_goes_to_the_first_vm() {
    let folder = Folder::with_vms(&["one", "two"]);
    folder.run("echo").write_stdin("hi\nq\n").assert().success().stdout(contains("one| hi\none| q\n"));
}

#[test]
fn events_as_json() {
    let folder = Folder::with_vms(&["one"]);
    let output = folder.run("poweroff").arg("--json").output().unwrap();
    assert!(output.status.success());
    let lines: Vec<serde_json::Value> =
        output.stdout.lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    let kinds: Vec<&str> = lines.iter().map(|line| line["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["text", "hello", "vm", "started", "console", "stopped", "done"]);
    assert_eq!(lines[2]["name"], "one");
    assert_eq!(lines[5]["reason"], "powered-off");
}

#[test]
fn qemus_that_cannot_be_used() {
    let folder = Folder::with_vms(&["one"]);
    folder
        .run("poweroff")
        .env("FAKE_QEMU_VERSION", "7.2.17")
        .assert()
        .code(3)
        .stderr(contains("is QEMU 7.2.17; 10.0 or newer is needed").and(contains("--qemu")));
    let with = |program: &str| {
        let mut command = folder.turnstile();
        command.args(["run", "m.toml", "--image", "h", "--qemu", program]);
        command.assert().code(3)
    };
    with("/nonexistent/qemu").stderr(contains("/nonexistent/qemu does not start"));
    with("/bin/true").stderr(contains("is not QEMU"));
}

#[test]
fn no_qemu_and_no_way_to_get_one() {
    let folder = Folder::with_vms(&["one"]);
    folder
        .turnstile()
        .args(["run", "m.toml", "--image", "h"])
        .env("PATH", folder.path())
        .assert()
        .code(3)
        .stderr(contains("qemu-system-aarch64 is not installed"))
        .stderr(contains("QEMU 10.0 or newer"));
}

/// Starts the tool with a machine that goes on, and waits until it does.
fn start(folder: &Folder, play: &str) -> Child {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("turnstile"));
    command.args(["run", "m.toml", "--image", "h", "--qemu"]).arg(fake_qemu()).env("FAKE_QEMU", play);
    command.envs(folder.environment()).current_dir(folder.path());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "hello from one\r\n");
    child
}

/// The child of a process.
fn child_of(id: u32) -> String {
    let path = format!("/proc/{id}/task/{id}/children");
    fs::read_to_string(path).unwrap().split_whitespace().next().expect("QEMU runs").to_owned()
}

fn kill(signal: &str, id: &str) {
    assert!(Command::new("kill").args([signal, id]).status().unwrap().success());
}

#[test]
fn qemu_is_killed() {
    let folder = Folder::with_vms(&["one"]);
    let mut child = start(&folder, "hang");
    kill("-KILL", &child_of(child.id()));
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let mut said = String::new();
    child.stderr.unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("QEMU ended early: it was killed (signal 9)"), "{said}");
}

#[test]
fn signals_end_the_tool_and_qemu() {
    for (signal, code) in [("-TERM", 143), ("-INT", 130), ("-HUP", 129)] {
        let folder = Folder::with_vms(&["one"]);
        let mut child = start(&folder, "echo");
        let qemu = child_of(child.id());
        kill(signal, &child.id().to_string());
        assert_eq!(child.wait().unwrap().code(), Some(code), "{signal}");
        assert!(!std::path::Path::new(&format!("/proc/{qemu}")).exists(), "QEMU is left after {signal}");
    }
}

#[test]
fn qemu_ends_with_the_tool_whatever_that_dies_of() {
    let folder = Folder::with_vms(&["one"]);
    let mut child = start(&folder, "hang");
    let qemu = child_of(child.id());
    kill("-KILL", &child.id().to_string());
    child.wait().unwrap();
    let gone = || fs::read_to_string(format!("/proc/{qemu}/stat")).map_or(true, |stat| stat.contains(") Z "));
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while !gone() {
        assert!(std::time::Instant::now() < deadline, "QEMU lives on");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn machine_that_does_not_end_is_stopped_by_timeout() {
    let folder = Folder::with_vms(&["one"]);
    folder
        .run("spin")
        .args(["--timeout", "1"])
        .assert()
        .code(1)
        .stderr(contains("its 1 s of processor time"));
}

#[test]
fn build_writes_both_files_and_says_how_to_boot_them() {
    let folder = Folder::with_vms(&["one"]);
    folder
        .turnstile()
        .args(["build", "m.toml", "--image", "h", "-o", "out"])
        .assert()
        .success()
        .stdout(starts_with("out/turnstile-arm64.image"))
        .stdout(contains("-kernel out/turnstile-arm64.image").and(contains("-initrd out/bundle")));
    let bytes = fs::read(folder.path().join("out/bundle")).unwrap();
    let bundle = turnstile_bundle::Bundle::parse(&bytes).unwrap();
    assert_eq!(bundle.vms()[0].name, "one");
    assert_eq!(bundle.vms()[0].kernel, common::image(4096));
}
