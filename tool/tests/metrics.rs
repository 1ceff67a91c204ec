// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `turnstile run --metrics`, with a stand-in for QEMU.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{Folder, fake_qemu};
use predicates::str::contains;

/// A `turnstile run` that serves metrics, until its input says `q`.
struct Running {
    child: Child,
    /// Where they are: ADDRESS:PORT.
    address: String,
}

impl Running {
    fn start(folder: &Folder) -> Self {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("turnstile"));
        command
            .args(["run", "m.toml", "--image", "h", "--metrics", "127.0.0.1:0", "--qemu"])
            .arg(fake_qemu());
        command.current_dir(folder.path()).envs(folder.environment()).env("FAKE_QEMU", "echo");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let line = lines.find(|line| line.contains("metrics: http://")).unwrap();
        let address = line.split("http://").nth(1).unwrap().trim_end_matches("/metrics").to_owned();
        Running { child, address }
    }

    fn metrics(&self) -> String {
        get(&self.address, "/metrics")
    }

    fn end(mut self) {
        self.child.stdin.take().unwrap().write_all(b"q").unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn what_a_machine_counts_is_served_while_it_runs() {
    let folder = Folder::with_vms(&["one", "two"]);
    let running = Running::start(&folder);
    let metrics = running.metrics();
    for line in [
        "turnstile_vm_running{vm=\"one\"} 1",
        "turnstile_vm_starts_total{vm=\"two\"} 1",
        "turnstile_exit_seconds_count{vm=\"one\",reason=\"hypercall\"} 1000",
    ] {
        assert!(metrics.contains(line), "{line} is missing in\n{metrics}");
    }
    let address = running.address.clone();
    running.end();
    assert!(TcpStream::connect(address).is_err(), "nobody serves it any more");
}

#[test]
fn addresses_that_cannot_be_used() {
    let folder = Folder::with_vms(&["one"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let run = |more: &[&str]| folder.run("poweroff").args(more).assert();
    run(&["--metrics", &address]).code(1).stderr(contains("cannot offer metrics at 127.0.0.1"));
    run(&["--metrics", "9464"]).code(2).stderr(contains("--metrics <ADDRESS:PORT>"));
    run(&["--metrics", "127.0.0.1:0", "--plain"]).code(2);
}

/// Where Debian's package `prometheus` is installed, it reads what is served.
#[test]
fn prometheus_reads_it() {
    if Command::new("prometheus").arg("--version").output().is_err() {
        eprintln!("prometheus is not installed: not tried");
        return;
    }
    let folder = Folder::with_vms(&["one"]);
    let running = Running::start(&folder);
    let own = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let scrape = format!(
        "scrape_configs:\n- job_name: turnstile\n  scrape_interval: 1s\n  static_configs:\n  - targets: ['{}']\n",
        running.address
    );
    folder.write("prometheus.yml", scrape.as_bytes());
    let mut prometheus = Command::new("prometheus")
        .args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"])
        .arg(format!("--web.listen-address={own}"))
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (begin, query) = (Instant::now(), "/api/v1/query?query=turnstile_exit_seconds_count");
    let mut answer = String::new();
    while !answer.contains(r#""reason":"hypercall""#) && begin.elapsed() < Duration::from_secs(30) {
        std::thread::sleep(Duration::from_millis(200));
        if TcpStream::connect(&own).is_ok() {
            answer = get(&own, query);
        }
    }
    prometheus.kill().unwrap();
    prometheus.wait().unwrap();
    assert!(answer.contains(r#""reason":"hypercall""#), "{answer}");
    running.end();
}
