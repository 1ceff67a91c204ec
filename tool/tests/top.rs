// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `turnstile top`, with a stand-in for QEMU: one reading for programs, the live screen, and a running session.

mod common;

use std::fs;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use common::terminal::Terminal;
use common::{Folder, fake_qemu};
use predicates::prelude::*;
use predicates::str::contains;

/// `turnstile top` with these arguments.
fn top(folder: &Folder, arguments: &[&str]) -> assert_cmd::Command {
    let mut command = folder.turnstile();
    command.arg("top").args(arguments).env("FAKE_QEMU", "echo");
    command
}

/// `turnstile top m.toml` with the stand-in for QEMU.
fn top_of_machine(folder: &Folder, arguments: &[&str]) -> assert_cmd::Command {
    let mut command = top(folder, &["m.toml", "--image", "h", "--qemu"]);
    command.arg(fake_qemu()).args(arguments);
    command
}

fn json(command: &mut assert_cmd::Command) -> serde_json::Value {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn one_reading_of_a_machine_as_json() {
    let folder = Folder::with_vms(&["one", "two"]);
    let reading = json(&mut top_of_machine(&folder, &["--once", "--json"]));
    assert_eq!((&reading["schema"], &reading["vms"][1]["name"]), (&2.into(), &"two".into()));
    let calls = &reading["vms"][0]["vcpus"][0]["reasons"][0];
    assert_eq!(
        (&calls["reason"], &calls["count"], &calls["mean"]),
        (&"hypercall".into(), &1000.into(), &50.0.into())
    );
    assert_eq!(calls["buckets"].to_string(), "[[6,1000]]");
    assert_eq!(
        reading["vms"][0]["memory"],
        serde_json::json!({ "bytes": 6 << 20, "limit": 16 << 20, "waits": false })
    );
    assert_eq!(reading["pool"], serde_json::json!({ "bytes": 1 << 30, "free": 1012 << 20 }));
    let only = json(&mut top_of_machine(&folder, &["--once", "--json", "--vm", "two", "--after", "0.1"]));
    assert_eq!((only["vms"].as_array().unwrap().len(), &only["vms"][0]["name"]), (1, &"two".into()));
}

#[test]
fn one_reading_as_a_table() {
    let folder = Folder::with_vms(&["one"]);
    let row = predicates::str::is_match("one +0 +hypercall +1000 +50 ns").unwrap();
    let memory = predicates::str::is_match("one +6MiB of 16MiB").unwrap();
    top_of_machine(&folder, &["--once"]).assert().success().stdout(row.and(memory));
}

#[test]
fn what_cannot_be_done_is_said() {
    let folder = Folder::with_vms(&["one"]);
    top(&folder, &["m.toml"]).assert().code(2).stderr(contains("not a terminal").and(contains("--once")));
    top(&folder, &["--once"])
        .assert()
        .code(1)
        .stderr(contains("no machine is running").and(contains("run --statistics")));
    top(&folder, &["--once", "--session", "x"])
        .assert()
        .code(1)
        .stderr(contains("no machine `x` is running"));
    top(&folder, &["--json"]).assert().code(2).stderr(contains("--once"));
    top(&folder, &["--once", "--after", "-1"]).assert().code(2);
    top_of_machine(&folder, &["--once", "--vm", "tow"]).assert().code(2).stderr(contains("the VMs are: one"));
    let ends = |play| {
        let mut command = top_of_machine(&folder, &["--once", "--after", "20"]);
        command.env("FAKE_QEMU", play).assert().code(1)
    };
    ends("poweroff").stderr(contains("ended before its statistics were read"));
    ends("die").stderr(contains("QEMU ended early").and(contains("it is broken")));
    ends("fault").stderr(contains("page fault at 0x10"));
}

/// A `turnstile run` that goes on until its input says `q`.
struct Running {
    child: Child,
    input: ChildStdin,
}

impl Running {
    fn start(folder: &Folder, more: &[&str]) -> Self {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("turnstile"));
        command.args(["run", "m.toml", "--image", "h", "--qemu"]).arg(fake_qemu()).args(more);
        command.current_dir(folder.path()).envs(folder.environment()).env("FAKE_QEMU", "echo");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let begin = Instant::now();
        while sockets(folder).is_empty() {
            assert!(begin.elapsed() < Duration::from_secs(20), "no socket is offered");
            std::thread::sleep(Duration::from_millis(10));
        }
        Running { child, input }
    }

    fn end(mut self) {
        use std::io::Write;
        self.input.write_all(b"q").unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}

fn sockets(folder: &Folder) -> Vec<String> {
    let entries = fs::read_dir(folder.path().join("turnstile")).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn a_running_session_is_read_beside_its_consoles() {
    let folder = Folder::with_vms(&["one"]);
    let running = Running::start(&folder, &["--statistics"]);
    let count = |arguments: &[&str]| {
        let reading = json(&mut top(&folder, arguments));
        reading["vms"][0]["vcpus"][0]["reasons"][0]["count"].as_u64().unwrap()
    };
    assert_eq!(count(&["--once", "--json"]), 1000);
    assert_eq!(count(&["--once", "--json", "--session", "m"]), 2000);
    running.end();
    assert!(sockets(&folder).is_empty(), "the socket is taken away");
    top(&folder, &["--once"]).assert().code(1);
}

#[test]
fn a_session_without_statistics_is_refused() {
    let folder = Folder::with_vms(&["one"]);
    let running = Running::start(&folder, &[]);
    top(&folder, &["--once"]).assert().code(1).stderr(contains("no VM of this machine keeps statistics"));
    running.end();
}

#[test]
fn several_sessions_must_be_told_apart() {
    let folder = Folder::with_vms(&["one"]);
    let (first, second) =
        (Running::start(&folder, &["--statistics"]), Running::start(&folder, &["--statistics"]));
    let begin = Instant::now();
    while sockets(&folder).len() < 2 && begin.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(10));
    }
    top(&folder, &["--once"])
        .assert()
        .code(2)
        .stderr(contains("2 machines are running").and(contains("--session")));
    let process = second.child.id().to_string();
    top(&folder, &["--once", "--session", &process]).assert().success();
    first.end();
    second.end();
}

/// The live screen.
fn screen(folder: &Folder, play: &str, arguments: &str) -> Terminal {
    Terminal::start(folder, play, &format!("top m.toml --image h {arguments}"))
}

/// The tool has left the alternate screen, has ended with this code, and the terminal's mode is as it was.
fn ended(mut terminal: Terminal, code: &str) {
    terminal.expect("\x1b[?1049l");
    terminal.ended(code);
}

#[test]
fn the_screen_shows_rates_and_keys_work() {
    let folder = Folder::with_vms(&["one"]);
    let mut terminal = screen(&folder, "echo", "--interval 0.2");
    terminal.expect("rate");
    terminal.expect("hypercall");
    terminal.press("h");
    terminal.expect("logarithmic");
    terminal.press("h");
    terminal.press(" ");
    terminal.expect("paused");
    terminal.press("q");
    ended(terminal, "0");
}

#[test]
fn control_c_and_signals_leave_the_terminal_as_it_was() {
    let folder = Folder::with_vms(&["one"]);
    let mut terminal = screen(&folder, "echo", "");
    terminal.expect("hypercall");
    terminal.session.send_control('c').unwrap();
    ended(terminal, "0");
    let mut terminal = screen(&folder, "echo", "");
    terminal.expect("hypercall");
    assert!(Command::new("kill").arg(terminal.id.trim()).status().unwrap().success());
    ended(terminal, "143");
}

#[test]
fn a_machine_that_ends_leaves_its_last_figures() {
    let folder = Folder::with_vms(&["one"]);
    let mut terminal = screen(&folder, "poweroff", "");
    terminal.expect("ended:");
    terminal.press("q");
    ended(terminal, "0");
    let terminal = screen(&folder, "die", "");
    ended(terminal, "1");
}
