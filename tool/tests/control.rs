// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Machines in the background, and the commands for machines that run, with a stand-in for QEMU.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::terminal::Terminal;
use common::{Folder, fake_qemu};
use predicates::prelude::*;
use predicates::str::contains;

/// A machine in the background, which ends with the test.
struct Machine<'a> {
    folder: &'a Folder,
    process: String,
}

impl<'a> Machine<'a> {
    fn start(folder: &'a Folder, play: &str) -> Self {
        let output = folder.run(play).arg("--detach").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let name = String::from_utf8(output.stdout).unwrap();
        let process = name.trim_end().strip_prefix("m-").unwrap_or_else(|| panic!("{name}")).to_owned();
        let machine = Machine { folder, process };
        // It is up as soon as the hypervisor speaks: its VMs come behind that.
        let begin = Instant::now();
        while machine.logs().matches("hello from").count() < machine.vms().len() {
            assert!(begin.elapsed() < Duration::from_secs(20), "not all VMs start");
        }
        machine
    }

    /// What `logs` prints.
    fn logs(&self) -> String {
        String::from_utf8(self.command(&["logs", &self.process]).output().unwrap().stdout).unwrap()
    }

    /// A command about it.
    fn command(&self, arguments: &[&str]) -> assert_cmd::Command {
        let mut command = self.folder.turnstile();
        command.args(arguments);
        command
    }

    /// What `ls --json` says of its VMs.
    fn vms(&self) -> Vec<(String, u64)> {
        let output = self.command(&["ls", "--json"]).output().unwrap();
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let vms = report["machines"][0]["vms"].as_array().unwrap();
        let vm = |vm: &serde_json::Value| {
            (vm["state"].as_str().unwrap().to_owned(), vm["starts"].as_u64().unwrap())
        };
        vms.iter().map(vm).collect()
    }

    fn connect(&self) -> Connection {
        let path = self.folder.path().join(format!("turnstile/m-{}.sock", self.process));
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut connection = Connection { lines: BufReader::new(stream.try_clone().unwrap()), stream };
        assert_eq!(connection.line()["control"], 1);
        connection
    }

    fn runs(&self) -> bool {
        Path::new(&format!("/proc/{}", self.process)).exists()
    }
}

impl Drop for Machine<'_> {
    fn drop(&mut self) {
        if self.runs() {
            let _ = Command::new("kill").arg(&self.process).status();
        }
    }
}

/// A client without the tool.
struct Connection {
    stream: UnixStream,
    lines: BufReader<UnixStream>,
}

impl Connection {
    fn send(&mut self, request: &str) {
        self.stream.write_all(format!("{request}\n").as_bytes()).unwrap();
    }

    fn line(&mut self) -> serde_json::Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Reads lines until one is as wanted.
    fn expect(&mut self, is_wanted: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
        std::iter::repeat_with(|| self.line()).find(is_wanted).unwrap()
    }

    /// Reads events until a console says this.
    fn hear(&mut self, text: &str) {
        self.expect(|line| line["text"].as_str().is_some_and(|said| said.contains(text)));
    }

    fn type_in(&mut self, text: &str) {
        self.send(&format!(r#"{{"request":"type","vm":"one","text":"{text}"}}"#));
    }
}

fn running(starts: u64) -> (String, u64) {
    ("running".to_owned(), starts)
}

#[test]
fn sizes_of_balloons_are_checked_before_all_else() {
    let folder = Folder::with_vms(&["one"]);
    let balloon = |size: &str| folder.turnstile().args(["balloon", "m", "one", size]).assert();
    balloon("0MiB").code(2).stderr(contains("no guest does without memory"));
    balloon("96MB").code(2).stderr(contains("`96MB` is not a size").and(contains("\"96MiB\"")));
    balloon("96MiB").code(1).stderr(contains("no machine `m` is running"));
}

#[test]
fn vms_are_stopped_started_and_restarted_by_name() {
    let folder = Folder::with_vms(&["one", "two"]);
    let machine = Machine::start(&folder, "echo");
    assert_eq!(machine.vms(), [running(1), running(1)]);
    machine.command(&["stop", "m", "two"]).assert().success();
    assert_eq!(machine.vms(), [running(1), ("stopped".to_owned(), 1)]);
    machine.command(&["stop", "m", "two"]).assert().code(1).stderr(contains("VM `two` does not run"));
    machine.command(&["restart", "m", "one"]).assert().success();
    machine.command(&["start", &machine.process, "two"]).assert().success();
    assert_eq!(machine.vms(), [running(2), running(2)]);
    machine.command(&["start", "m", "two"]).assert().code(1).stderr(contains("VM `two` is running"));
    machine.command(&["start", "m"]).assert().code(1).stderr(contains("no VM is stopped"));
    machine.command(&["restart", "m"]).assert().success();
    assert_eq!(machine.vms(), [running(3), running(3)]);
    machine.command(&["stop", "m", "one"]).assert().success();
    assert!(machine.runs());
    // The last one.
    machine.command(&["stop", "m", "two"]).assert().success();
    folder.turnstile().arg("ls").assert().success().stdout("").stderr(contains("no machine is running"));
}

#[test]
fn a_machine_in_the_background_is_its_own_and_ends_when_it_is_stopped() {
    let folder = Folder::with_vms(&["one"]);
    let machine = Machine::start(&folder, "echo");
    let stat = fs::read_to_string(format!("/proc/{}/stat", machine.process)).unwrap();
    let session = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(3).unwrap();
    assert_eq!(session, machine.process, "no terminal's end reaches it");
    let name = format!("m-{}", machine.process);
    let row =
        predicates::str::is_match(format!(r"{name} +\d+ s +one +running +6MiB of 16MiB +1 +1")).unwrap();
    let pool = contains("1018MiB free").and(contains("6MiB of 1GiB"));
    folder.turnstile().arg("ls").assert().success().stdout(row.and(pool));
    let output = folder.turnstile().args(["ls", "--json"]).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let listed = &report["machines"][0];
    assert_eq!(
        (&report["schema"], &listed["name"], &listed["detached"]),
        (&1.into(), &name.into(), &true.into())
    );
    assert_eq!(listed["process"].to_string(), machine.process);
    let memory = serde_json::json!({ "bytes": 6 << 20, "limit": 16 << 20, "waits": false });
    let vm =
        serde_json::json!({ "name": "one", "vcpus": 1, "state": "running", "starts": 1, "memory": memory });
    assert_eq!(listed["vms"][0], vm);
    assert_eq!(listed["pool"], serde_json::json!({ "bytes": 1 << 30, "free": 1018 << 20 }));
    machine.command(&["top", "--once"]).assert().code(1).stderr(contains("keeps statistics"));
    machine.command(&["stop", "m"]).assert().success();
    let left: Vec<_> = fs::read_dir(folder.path().join("turnstile")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    machine.command(&["stop", "m"]).assert().code(1).stderr(contains("no machine `m` is running"));
}

#[test]
fn vms_are_paused_and_go_on() {
    let folder = Folder::with_vms(&["one", "two"]);
    let machine = Machine::start(&folder, "echo");
    let paused = || ("paused".to_owned(), 1);
    let mut follower = machine.connect();
    follower.send(r#"{"request":"logs","follow":true}"#);
    machine.command(&["resume", "m", "one"]).assert().code(1).stderr(contains("VM `one` is running"));
    machine.command(&["pause", "m", "one"]).assert().success();
    assert_eq!(machine.vms(), [paused(), running(1)]);
    machine.command(&["pause", "m", "one"]).assert().code(1).stderr(contains("VM `one` is paused"));
    machine.command(&["pause", "m"]).assert().success();
    assert_eq!(machine.vms(), [paused(), paused()]);
    folder.turnstile().arg("ls").assert().success().stdout(contains("paused"));
    machine.command(&["resume", "m"]).assert().success();
    assert_eq!(machine.vms(), [running(1), running(1)]);
    follower.expect(|line| line["event"] == "paused" && line["vm"] == "two");
    follower.expect(|line| line["event"] == "resumed" && line["microseconds"] == 250_000);
    // By the key, and a stop ends it.
    let mut console = Terminal::of(&folder, "", "console m two");
    console.expect("hello from two");
    console.press("\x01z");
    console.expect("two is paused");
    machine.command(&["restart", "m", "two"]).assert().success();
    assert_eq!(machine.vms(), [running(1), running(2)]);
    console.expect("two starts");
    console.press("\x01x");
    console.ended("0");
}

#[test]
fn a_pause_that_is_under_way_is_taken_back() {
    let folder = Folder::with_vms(&["one"]);
    let machine = Machine::start(&folder, "busy");
    let mut client = machine.connect();
    client.send(r#"{"request":"pause"}"#);
    client.expect(|line| line["ok"].is_null());
    assert_eq!(machine.vms(), [("pausing".to_owned(), 1)]);
    machine.command(&["pause", "m"]).assert().code(1).stderr(contains("no VM runs"));
    machine.command(&["resume", "m"]).assert().success();
    assert_eq!(machine.vms(), [running(1)]);
}

#[test]
fn wrong_names_are_answered_by_the_right_ones() {
    let folder = Folder::with_vms(&["one", "two"]);
    let lonely = folder.turnstile().args(["stop", "x"]).assert().code(1);
    lonely.stderr(contains("no machine `x` is running").and(contains("help: no machine is running")));
    let machine = Machine::start(&folder, "echo");
    let name = format!("running are: m-{}", machine.process);
    for command in ["stop", "start", "restart", "pause", "resume", "console", "logs"] {
        machine.command(&[command, "x"]).assert().code(1).stderr(contains(&name));
        let wrong = machine.command(&[command, "m", "tow"]).assert().code(2);
        wrong.stderr(contains("there is no VM `tow`").and(contains("the VMs are: one, two")));
    }
    let another = Machine::start(&folder, "echo");
    let both = machine.command(&["stop", "m"]).assert().code(2);
    both.stderr(contains("2 machines are running").and(contains(format!("m-{}", another.process))));
    machine.command(&["stop", &another.process]).assert().success();
}

#[test]
fn another_version_is_named() {
    let folder = Folder::with_vms(&["one"]);
    fs::create_dir(folder.path().join("turnstile")).unwrap();
    let listener = UnixListener::bind(folder.path().join("turnstile/old-77.sock")).unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.write_all(b"{\"control\":99,\"tool\":\"9.9.9\",\"machine\":\"old-77\"}\n");
        }
    });
    let stop = folder.turnstile().args(["stop", "old"]).assert().code(1);
    stop.stderr(
        contains("turnstile 9.9.9 runs old-77 with version 99 of control, not 1").and(contains("kill 77")),
    );
    folder.turnstile().arg("ls").assert().success().stdout(contains("version 99"));
}

#[test]
fn consoles_in_a_pipe() {
    let folder = Folder::with_vms(&["one", "two"]);
    let machine = Machine::start(&folder, "echo");
    machine.command(&["logs", "m"]).assert().success().stdout("one| hello from one\ntwo| hello from two\n");
    machine.command(&["logs", "m", "two"]).assert().success().stdout("hello from two\r\n");
    let mut follower = Command::new(assert_cmd::cargo::cargo_bin!("turnstile"));
    follower.args(["logs", "--follow", "m"]).current_dir(folder.path()).envs(folder.environment());
    let mut follower = follower.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut followed = BufReader::new(follower.stdout.take().unwrap());
    let mut said = String::new();
    followed.read_line(&mut said).unwrap();
    assert_eq!(said, "one| hello from one\n", "it follows");
    // The machine ends by what is typed.
    let console = machine.command(&["console", "m", "two"]).write_stdin("hi\nq\n").assert().success();
    console
        .stdout("hello from two\r\nhi\nq\n")
        .stderr(contains("two: powered off").and(contains("has ended")));
    followed.read_to_string(&mut said).unwrap();
    assert!(said.ends_with("two| hi\ntwo| q\n"), "{said}");
    assert!(follower.wait().unwrap().success());
}

#[test]
fn consoles_on_terminals_have_the_keys_of_run() {
    let folder = Folder::with_vms(&["one", "two"]);
    let machine = Machine::start(&folder, "echo");
    let mut first = Terminal::of(&folder, "", "console m two");
    let mut second = Terminal::of(&folder, "", "console m");
    first.expect("hello from two");
    second.expect("hello from one");
    first.press("abc\x03");
    first.expect("abc\x03");
    second.press("\x01n");
    second.expect("two (2 of 2)");
    second.expect("hello from two");
    second.expect("abc\x03");
    // Both see what either types.
    second.press("xyz");
    first.expect("xyz");
    first.press("\x01h");
    first.expect("the machine goes on");
    first.press("\x01r");
    second.expect("two starts (start 2)");
    second.press("\x01s");
    second.expect("two: stopped");
    second.press("\x01s");
    second.expect("present state does not allow this");
    first.press("\x01x");
    first.ended("0");
    assert_eq!(machine.vms(), [running(1), ("stopped".to_owned(), 2)]);
    machine.command(&["stop", "m"]).assert().success();
    second.expect("the machine has ended");
    second.ended("0");
}

#[test]
fn nothing_waits_for_a_client_that_does_not_read_or_has_died() {
    let folder = Folder::with_vms(&["one"]);
    let machine = Machine::start(&folder, "echo");
    let follow = r#"{"request":"logs","follow":true}"#;
    let (mut idle, mut dead) = (machine.connect(), machine.connect());
    [&mut idle, &mut dead].into_iter().for_each(|client| client.send(follow));
    drop(dead);
    idle.type_in("!");
    let begin = Instant::now();
    while !machine.logs().contains("that was all") {
        assert!(begin.elapsed() < Duration::from_secs(20), "the machine waits for a client");
    }
    machine.command(&["restart", "m", "one"]).assert().success();
    let mut good = machine.connect();
    good.send(follow);
    good.type_in("still there");
    good.hear("still there");
    let lost = idle.expect(|line| line["event"] == "lost")["bytes"].as_u64().unwrap();
    assert!(lost > 1 << 20, "{lost} bytes were lost, and the rest was kept");
    good.type_in("back again");
    idle.hear("back again");
}

#[test]
fn who_types_waits_for_the_guest_and_nobody_else_does() {
    let folder = Folder::with_vms(&["one"]);
    let machine = Machine::start(&folder, "deaf");
    let mut typist = machine.connect();
    (0..4).for_each(|_| typist.type_in(&"x".repeat(32 * 1024)));
    // As much as is kept, less what the guest has room for.
    (0..2).for_each(|_| assert_eq!(typist.line(), serde_json::json!({ "ok": null })));
    typist.stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    assert!(typist.lines.read_line(&mut String::new()).is_err(), "more is kept");
    assert_eq!(machine.vms(), [running(1)]);
    machine.command(&["restart", "m", "one"]).assert().success();
}

#[test]
fn what_keeps_a_machine_from_the_background_is_said() {
    let folder = Folder::with_vms(&["one"]);
    folder.run("refuse").arg("--detach").assert().code(1).stdout("").stderr(contains("it is broken"));
    folder.run("echo").args(["--detach", "--plain"]).assert().code(2).stderr(contains("--plain"));
    folder.write("m.toml", b"[[vm]]\n");
    folder.run("echo").arg("--detach").assert().code(2).stdout("").stderr(contains("m.toml"));
    folder.turnstile().arg("ls").assert().success().stdout("");
}

#[test]
fn why_a_machine_in_the_background_failed_is_kept() {
    let folder = Folder::with_vms(&["one"]);
    let machine = Machine::start(&folder, "hang");
    // Nor does it say how much memory it has: it is listed all the same.
    assert_eq!(machine.vms(), [running(1)]);
    let path = format!("/proc/{0}/task/{0}/children", machine.process);
    let qemu = fs::read_to_string(path).unwrap();
    assert!(Command::new("kill").args(["-KILL", qemu.trim()]).status().unwrap().success());
    let begin = Instant::now();
    while machine.runs() && begin.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(10));
    }
    machine.command(&["logs", "m"]).assert().code(1).stderr(contains("it was killed (signal 9)"));
    let again = Machine::start(&folder, "echo");
    again.command(&["stop", "m"]).assert().success();
    let ended = again.command(&["logs", "m"]).assert().code(1);
    ended.stderr(contains("no machine is running").and(contains("signal 9").not()));
}

#[test]
fn a_machine_in_the_background_writes_its_logs() {
    let folder = Folder::with_vms(&["one"]);
    let mut command = folder.turnstile();
    command.args(["run", "m.toml", "--detach", "--log", "logs", "--image", "h", "--qemu"]).arg(fake_qemu());
    let output = command.env("FAKE_QEMU", "echo").output().unwrap();
    let name = String::from_utf8(output.stdout).unwrap();
    assert!(name.starts_with("m-"), "{name} {}", String::from_utf8_lossy(&output.stderr));
    folder.turnstile().args(["stop", "m"]).assert().success();
    let log = fs::read_to_string(folder.path().join("logs/one.log")).unwrap();
    assert!(log.contains("Z hello from one\n") && log.contains("Z [turnstile] stopped\n"), "{log}");
}

#[test]
fn a_vm_that_cannot_start_is_said_at_once() {
    let folder = Folder::with_vms(&["one", "two"]);
    let machine = Machine::start(&folder, "stuck");
    let why = "VM `two` does not start: there is no memory for it";
    let begin = std::time::Instant::now();
    machine.command(&["restart", "m", "two"]).assert().code(1).stderr(contains(why));
    machine.command(&["start", "m", "two"]).assert().code(1).stderr(contains(why));
    assert!(begin.elapsed() < Duration::from_secs(20), "nobody waits until it has not started");
    let listed =
        predicates::str::is_match("two +crashed: it does not start: there is no memory for it").unwrap();
    folder.turnstile().arg("ls").assert().success().stdout(listed);
    machine.command(&["stop", "m"]).assert().success();
}
