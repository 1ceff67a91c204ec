// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `turnstile run` in a pipe, with a stand-in for QEMU.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use common::{Folder, fake_qemu, hypervisor, image};
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
fn forwards_lead_somewhere_from_ports_of_their_own() {
    let folder = Folder::with_vms(&["one"]);
    let forward = |ports: [&str; 2]| {
        folder.run("poweroff").args(["--forward", ports[0], "--forward", ports[1]]).assert()
    };
    forward(["2222:22", "2223:22"])
        .code(2)
        .stderr(contains("no network of this machine has the uplink net0"));
    let vm = "[[vm]]\nname = \"one\"\nkernel = \"k\"\nmemory = \"16MiB\"\nnetworks = [\"lan\"]\n";
    folder.write("m.toml", format!("{vm}[[network]]\nname = \"lan\"\nuplink = \"net0\"\n").as_bytes());
    forward(["2222:22", "2222:23"])
        .code(2)
        .stderr(contains("two --forward are of port 2222 of this computer"));
    forward(["2222:22", "2223:22"]).success();
}

#[test]
fn numbers_that_are_none_are_told_with_an_example() {
    let folder = Folder::with_vms(&["one"]);
    let wrong = |option: &str, value: &str, advice: &'static str| {
        folder.run("poweroff").args([option, value]).assert().code(2).stderr(contains(advice));
    };
    wrong("--timeout", "5s", "give seconds, such as 0.5 or 10");
    wrong("--metrics", "9464", "give an address and a port, such as 127.0.0.1:9464");
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

/// So much is pasted at once.
fn paste() -> String {
    let lines: String =
        (0..252).map(|number| format!("{number:03} {:.<95}\n", "the slow brown fox")).collect();
    assert_eq!(lines.len(), 25_200);
    lines
}

#[test]
fn all_of_a_paste_arrives() {
    let folder = Folder::with_vms(&["one"]);
    let paste = paste();
    let output = folder.run("echo").write_stdin(format!("{paste}q")).output().unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert_eq!(shown.strip_prefix("hello from one\r\n"), Some(format!("{paste}q").as_str()));
}

#[test]
fn input_that_nobody_reads_is_spoken_of_and_stays_in_the_pipe() {
    let waits = contains("turnstile: one does not read its input: 25200 bytes wait");
    let folder = Folder::with_vms(&["one"]);
    folder.run("deaf").args(["--timeout", "4"]).write_stdin(paste()).assert().code(1).stderr(waits);
    let output = folder.run("deaf").args(["--timeout", "4", "--json"]).write_stdin(paste()).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(
        said.contains("{\"time\"") && said.contains("\"type\":\"input-waits\",\"vm\":0,\"bytes\":25200"),
        "{said}"
    );
    // More than is kept: the rest is not taken from whoever writes it.
    let mut command = folder.run("deaf");
    let more = paste().repeat(10);
    let output = command.args(["--timeout", "4"]).write_stdin(more).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let waits =
        said.split(" bytes wait").next().and_then(|said| said.rsplit(' ').next()?.parse::<usize>().ok());
    assert!(waits.is_some_and(|waits| waits < 80 * 1024), "{said}");
}

#[test]
fn run_leaves_no_bundle_behind() {
    let folder = Folder::with_vms(&["one"]);
    let arguments = folder.path().join("arguments");
    folder.run("poweroff").env("FAKE_QEMU_ARGUMENTS", &arguments).assert().success();
    let told = fs::read_to_string(arguments).unwrap();
    let bundle = told.lines().skip_while(|line| *line != "-initrd").nth(1).unwrap();
    assert!(bundle.ends_with("/bundle") && !std::path::Path::new(bundle).exists(), "{bundle}");
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
    assert!(lines.iter().all(|line| line["time"].as_str().is_some_and(|time| time.ends_with('Z'))));
    // What comes byte by byte is shown by lines, with the name of the VM.
    assert_eq!(lines[4]["name"], "one");
    assert!(lines[4]["text"].as_str().unwrap().ends_with('\n'), "{}", lines[4]);
}

/// Makes a stand-in for QEMU that does what a shell is told.
fn scripted_qemu(folder: &Folder, script: &str) -> std::path::PathBuf {
    let version = "[ \"$1\" = --version ] && echo QEMU emulator version 10.0.2 && exit; [ \"$2\" = help ] && echo virt && exit";
    // Written by another process: a test that forks meanwhile would hold the file open, and it could not be started.
    let write = "printf '%s\\n' '#!/bin/sh' \"$1\" \"$2\" >qemu && chmod +x qemu";
    let mut shell = Command::new("sh");
    shell.args(["-c", write, "sh", version, script]).current_dir(folder.path());
    assert!(shell.status().unwrap().success());
    folder.path().join("qemu")
}

#[test]
fn plain_line_ends_as_its_vms_do() {
    let says = |lines: &str| {
        let folder = Folder::with_vms(&["one"]);
        let qemu = scripted_qemu(&folder, &format!("printf '{lines}'"));
        let mut command = folder.turnstile();
        command.args(["run", "m.toml", "--plain", "--image", "h", "--qemu"]).arg(qemu);
        command.assert()
    };
    let end = "turnstile: all VMs have stopped\\r\\n";
    says(&format!("hello\\r\\n\\r\\nturnstile: one powered off\\r\\n{end}"))
        .success()
        .stdout(contains("hello\r\n").and(contains("all VMs have stopped")))
        .stderr("");
    says(&format!("turnstile: one crashed\\r\\n{end}")).code(1);
    says("hello").code(1).stderr(contains("the machine ended before its VMs did"));
}

#[test]
fn help_names_what_qemu_said() {
    let dies = |script: &str| {
        let folder = Folder::with_vms(&["one"]);
        let qemu = scripted_qemu(&folder, script);
        let mut command = folder.turnstile();
        command.args(["run", "m.toml", "--image", "h", "--qemu"]).arg(qemu).assert().code(1)
    };
    dies("exit 3").stderr(contains("turnstile doctor").and(contains("lines above").not()));
    dies("echo Cannot allocate memory >&2; exit 1").stderr(contains("lower `memory`"));
}

/// Runs the tool with its standard output, and perhaps its standard error, on something else.
fn with_output(mut command: Command, folder: &Folder, out: Stdio, err: Stdio) -> (Option<i32>, String) {
    command.envs(folder.environment()).current_dir(folder.path());
    let output = command.stdin(Stdio::null()).stdout(out).stderr(err).spawn().unwrap();
    let output = output.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

fn full() -> Stdio {
    fs::File::options().write(true).open("/dev/full").unwrap().into()
}

fn unread() -> Stdio {
    std::io::pipe().unwrap().1.into()
}

fn tool(arguments: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("turnstile"));
    command.args(arguments);
    command
}

#[test]
fn output_that_cannot_be_written_is_an_error() {
    let folder = Folder::with_vms(&["one"]);
    let lost = "error: cannot write to standard output: No space left on device (os error 28)\n";
    for arguments in [["check", "m.toml"].as_slice(), &["--help"]] {
        let (code, said) = with_output(tool(arguments), &folder, full(), Stdio::piped());
        assert_eq!((code, said.as_str()), (Some(1), lost), "{arguments:?}");
        let (code, said) = with_output(tool(arguments), &folder, unread(), Stdio::piped());
        assert_eq!((code, said.as_str()), (Some(0), ""), "{arguments:?}");
    }
    let run = || {
        let mut command = tool(&["run", "m.toml", "--image", "h", "--qemu"]);
        command.arg(fake_qemu()).env("FAKE_QEMU", "poweroff");
        command
    };
    let (code, said) = with_output(run(), &folder, full(), Stdio::piped());
    assert!(code == Some(1) && said.ends_with(lost), "{said}");
    let (code, said) = with_output(run(), &folder, unread(), Stdio::piped());
    assert!(code == Some(0) && !said.contains("error"), "{said}");
}

#[test]
fn exit_code_does_not_depend_on_who_reads() {
    let folder = Folder::with_vms(&["one"]);
    folder.write("bad.toml", b"[[vm]]\n");
    let bad = || tool(&["check", "bad.toml", "--json"]);
    assert_eq!(with_output(bad(), &folder, unread(), Stdio::piped()).0, Some(2));
    let absent = || tool(&["check", "absent.toml"]);
    let usual = with_output(absent(), &folder, Stdio::null(), Stdio::piped()).0;
    assert_ne!(usual, Some(0));
    assert_eq!(with_output(absent(), &folder, Stdio::null(), full()).0, usual);
    assert_eq!(with_output(absent(), &folder, Stdio::null(), unread()).0, usual);
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
        .stderr(contains("the machine has run for its 1 s"));
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

#[test]
fn build_for_a_board_writes_a_card() {
    let folder = Folder::with_vms(&["one"]);
    let build = |arguments: &[&str]| {
        folder.turnstile().args(["build", "m.toml", "--image", "h"]).args(arguments).assert()
    };
    let files = ["kernel8.img", "bundle.img", "config.txt", "cmdline.txt", "README.txt"];
    let card = build(&["--board", "rpi4", "-o", "card"]).success().stdout(contains("README.txt says how"));
    files.iter().fold(card, |card, file| card.stdout(contains(format!("card/{file}"))));
    let read = |name: &str| fs::read(folder.path().join("card").join(name)).unwrap();
    assert_eq!(read("kernel8.img"), hypervisor(turnstile_link::VERSION));
    let bytes = read("bundle.img");
    assert_eq!(turnstile_bundle::Bundle::parse(&bytes).unwrap().vms()[0].name, "one");
    assert_eq!(fs::read_dir(folder.path().join("card")).unwrap().count(), files.len());

    let vms = "[[vm]]\nname = \"one\"\nkernel = \"k\"\nmemory = \"16MiB\"\nvcpus = 5\n";
    folder.write("m.toml", vms.as_bytes());
    build(&["--board", "rpi4"]).code(2).stderr(contains("need 5 CPUs, and the machine has 4"));
    folder.write("m.toml", format!("[machine]\nboard = \"virt\"\n{vms}").as_bytes());
    build(&["--board", "rpi4"]).code(2).stderr(contains("`rpi4` was asked for"));
    build(&["--board", "rpi5"])
        .code(2)
        .stderr(contains("[possible values: virt, rpi4, q35, pc, microvm, powernv9, powernv10]"));
    let large = "[machine]\nboard = \"rpi4\"\nmemory = \"8GiB\"\n";
    folder.write("m.toml", format!("{large}{}", vms.replace("vcpus = 5\n", "")).as_bytes());
    folder.run("spin").assert().code(2).stderr(contains("QEMU's rpi4 has 960MiB"));
}

#[test]
fn consoles_go_to_files() {
    let folder = Folder::with_vms(&["one", "two"]);
    let mut command = folder.run("crash");
    command.args(["--log", "a/logs", "--log-size", "4KiB", "--log-count", "1"]).assert().code(1);
    let read = |name: &str| fs::read_to_string(folder.path().join("a/logs").join(name)).unwrap();
    let one = read("one.log");
    for line in [
        "[turnstile] start 1\n",
        "hello from one\n",
        "[turnstile] the guest jumped to nowhere\n",
        "[turnstile] crashed\n",
    ] {
        assert!(one.contains(line), "{line}: {one}");
    }
    assert!(read("two.log").contains("Z hello from two\n"));
    assert!(read("_hypervisor.log").contains("Z Turnstile, a stand-in\n"));
    let report: serde_json::Value = serde_json::from_str(&read("one.crash.json")).unwrap();
    assert_eq!((&report["vm"], &report["report"][0]), (&"one".into(), &"the guest jumped to nowhere".into()));
    // Once more: the logs go on, and the report before is kept.
    folder.run("crash").args(["--log", "a/logs"]).assert().code(1);
    assert_eq!(read("one.log").matches("hello from one").count(), 2);
    assert!(read("one.crash.json.1").contains("jumped"));
}

#[test]
fn a_full_disk_does_not_stop_a_machine_that_writes_logs() {
    let folder = Folder::with_vms(&["one"]);
    fs::create_dir(folder.path().join("logs")).unwrap();
    std::os::unix::fs::symlink("/dev/full", folder.path().join("logs/one.log")).unwrap();
    let run = folder.run("poweroff").args(["--log", "logs"]).assert().success();
    run.stdout("hello from one\r\n")
        .stderr(contains("one.log: the disk is full").count(1))
        .stderr(contains("one: powered off"));
    folder.write("file", b"");
    let arguments = ["--log", "file"];
    folder
        .run("poweroff")
        .args(arguments)
        .assert()
        .code(2)
        .stdout("")
        .stderr(contains("cannot write logs to file: file is not a folder"));
    for wrong in [["--log-size", "1KiB"], ["--log-size", "lots"], ["--log-count", "-1"]] {
        folder.run("poweroff").args(["--log", "logs"]).args(wrong).assert().code(2).stdout("");
    }
}

#[test]
fn a_hypervisor_of_another_version_is_refused() {
    let folder = Folder::with_vms(&["one"]);
    folder.write("h", &hypervisor(4));
    let refused = folder.run("poweroff").assert().code(2).stdout("");
    refused.stderr(contains("the image h speaks version 4 of the serial line").and(contains("help: ")));
    folder.write("h", &image(4096));
    folder.run("poweroff").assert().code(2).stdout("").stderr(contains("does not say which version"));
    // One that says something else when it runs.
    folder.write("h", &hypervisor(turnstile_link::VERSION));
    let refused = folder.run("echo").env("FAKE_LINK", "77").assert().code(2);
    refused.stderr(contains("the hypervisor speaks version 77 of the serial line"));
}
