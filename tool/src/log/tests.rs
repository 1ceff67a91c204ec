// SPDX-License-Identifier: Apache-2.0 OR MIT

use std::fs;

use serde_json::Value;
use tempfile::TempDir;

use super::*;

fn options(folder: &Path) -> cli::Log {
    cli::Log { folder: Some(folder.to_owned()), size: 1 << 20, count: 2 }
}

fn open(folder: &Path) -> Log {
    let names = vec!["one".to_owned(), "two".to_owned()];
    Log::open(&options(folder), "m-1".to_owned(), names).unwrap().unwrap()
}

fn console(vm: u8, text: &str) -> Heard {
    Heard::Console { vm, text: text.into() }
}

/// What a file has behind the times of its lines.
fn lines(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    let without = |line: &str| {
        let (time, text) = line.split_once(' ').unwrap();
        assert!(humantime::parse_rfc3339(time).is_ok(), "{line}");
        text.to_owned()
    };
    text.lines().map(without).collect()
}

#[test]
fn each_console_has_a_file_of_lines_with_times() {
    let folder = TempDir::new().unwrap();
    let mut log = open(folder.path());
    for heard in [
        Heard::Text { text: b"Turnstile\r\n".to_vec() },
        console(0, "hel"),
        console(1, "# "),
        console(0, "lo\r\nmore\n"),
        Heard::Stopped { vm: 1, reason: StopReason::PowerOff, restarts: false },
    ] {
        assert_eq!(log.hear(&heard), None);
    }
    log.hear(&console(0, "last"));
    log.finish();
    assert_eq!(lines(&folder.path().join("one.log")), ["hello", "more", "last"]);
    assert_eq!(lines(&folder.path().join("two.log")), ["#", "[turnstile] powered off"]);
    assert_eq!(lines(&folder.path().join("_hypervisor.log")), ["Turnstile"]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3, "no reports");
}

#[test]
fn a_crash_leaves_a_report() {
    let folder = TempDir::new().unwrap();
    let mut log = open(folder.path());
    let crash = |text: &str| Heard::Crashed { vm: 1, text: text.to_owned() };
    let read = |name: &str| -> Value {
        serde_json::from_str(&fs::read_to_string(folder.path().join(name)).unwrap()).unwrap()
    };
    for heard in [
        Heard::Started { vm: 1, boots: 2, free_memory: 0, free_tables: 0 },
        console(1, "about to jump\n"),
        crash("it jumped"),
        crash("x0: 7"),
        Heard::Stopped { vm: 1, reason: StopReason::Crash, restarts: true },
    ] {
        log.hear(&heard);
    }
    let report = read("two.crash.json");
    let fields = ["schema", "machine", "vm", "starts", "restarts"].map(|name| report[name].to_string());
    assert_eq!(fields, ["1", "\"m-1\"", "\"two\"", "2", "true"]);
    assert_eq!(report["report"], serde_json::json!(["it jumped", "x0: 7"]));
    assert!(report["console"][1].as_str().unwrap().ends_with(" about to jump"), "{report}");
    // It cannot start: no stop follows. And a fault of the hypervisor.
    log.hear(&crash("two does not start: no memory"));
    assert_eq!(read("two.crash.json")["report"][0], "two does not start: no memory");
    log.hear(&Heard::Fault { text: "page fault".to_owned() });
    log.finish();
    assert_eq!(read("two.crash.json.1")["report"][0], "it jumped");
    let report = read("_hypervisor.crash.json");
    assert_eq!((&report["vm"], &report["report"][0]), (&Value::Null, &"page fault".into()));
}

#[test]
fn a_full_disk_is_said_once_and_what_is_lost_is_counted() {
    let folder = TempDir::new().unwrap();
    // Everything that is written there fails as on a full disk.
    std::os::unix::fs::symlink("/dev/full", folder.path().join("one.log")).unwrap();
    let mut log = open(folder.path());
    let said = log.hear(&console(0, "first\n")).unwrap();
    assert!(
        said.contains("one.log") && said.contains("the disk is full") && said.contains("goes on"),
        "{said}"
    );
    assert_eq!(log.hear(&console(0, "second\n")), None);
    assert_eq!(
        log.hear(&console(1, "another file\n")),
        None,
        "that it can be written says nothing of the first"
    );
    // There is room again.
    fs::remove_file(folder.path().join("one.log")).unwrap();
    log.files[0].file = Rotated::open(folder.path().join("one.log"), 1 << 20, 1).unwrap();
    assert_eq!(log.hear(&console(0, "third\n")).unwrap(), "logs: files can be written again");
    let lost = "2026-01-01T00:00:00.000Z first\n".len() + "2026-01-01T00:00:00.000Z second\n".len();
    let expected = [format!("[turnstile] {lost} bytes are missing here"), "third".to_owned()];
    assert_eq!(lines(&folder.path().join("one.log")), expected);
}

#[test]
fn two_machines_do_not_share_a_folder() {
    let folder = TempDir::new().unwrap();
    let log = open(folder.path());
    let failure = Log::open(&options(folder.path()), "m-2".to_owned(), Vec::new()).unwrap_err();
    assert!(failure.what().contains("another machine writes its logs to"), "{failure}");
    drop(log);
    assert!(Log::open(&options(folder.path()), "m-2".to_owned(), Vec::new()).is_ok());
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let failure = Log::open(&options(&file), "m-3".to_owned(), Vec::new()).unwrap_err();
    assert!(failure.what().contains("cannot write logs to"), "{failure}");
}
