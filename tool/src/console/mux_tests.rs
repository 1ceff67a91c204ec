// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The console state machine, without a terminal.

use turnstile_link::{Command, StopReason};

use super::mux::{ESCAPE, Mux};
use super::paper::{Action, Screen};
use crate::session::Heard;

fn two(screen: Screen) -> Mux {
    Mux::new(screen, ["one".to_owned(), "two".to_owned()])
}

fn console(vm: u8, text: &str) -> Heard {
    Heard::Console { vm, text: text.as_bytes().to_vec() }
}

/// All that is shown, without the dimming.
fn shown(actions: &[Action]) -> String {
    let bytes = actions.iter().flat_map(|action| match action {
        Action::Show(bytes) => bytes.clone(),
        _ => Vec::new(),
    });
    String::from_utf8(bytes.collect()).unwrap().replace("\x1b[2m", "").replace("\x1b[0m", "")
}

fn typed(vm: u8, bytes: &[u8]) -> Action {
    Action::Type { vm, bytes: bytes.to_vec() }
}

#[test]
fn help_is_folded_between_words() {
    let folded = shown(&Mux::new(Screen::Terminal, ["one".to_owned()]).folding(|| Some(40)).keys(b"\x01h"));
    assert!(folded.contains("  a       all VMs"), "{folded}");
    let plain = folded.replace("\x1b[2m", "").replace("\x1b[0m", "");
    assert!(plain.lines().all(|line| line.chars().count() <= 40), "{folded}");
}

#[test]
fn a_size_is_that_of_all_consoles() {
    let size = |vm| Action::Size { vm, columns: 132, rows: 50 };
    assert_eq!(two(Screen::Terminal).resized(Some((132, 50))), [size(0), size(1)]);
    assert!(two(Screen::Terminal).resized(None).is_empty(), "not known");
    assert!(two(Screen::Pipe).resized(Some((132, 50))).is_empty(), "nobody looks on");
}

#[test]
fn keys_go_to_the_vm_in_front() {
    let mut mux = two(Screen::Terminal);
    assert_eq!(mux.keys(b"ls\r\x03"), [typed(0, b"ls\r\x03")]);
    assert_eq!(mux.heard(&console(0, "x\r\n")), [Action::Show(b"x\r\n".to_vec())]);
    let actions = mux.keys(b"a\x01nb");
    assert_eq!(actions.first(), Some(&typed(0, b"a")), "typed before the switch");
    assert_eq!(actions.last(), Some(&typed(1, b"b")), "typed after the switch");
    assert!(shown(&actions).contains("two (2 of 2)"));
}

#[test]
fn escape_key_may_come_alone_and_sends_itself() {
    let mut mux = two(Screen::Terminal);
    assert_eq!(mux.keys(&[ESCAPE]), []);
    assert_eq!(mux.keys(&[ESCAPE]), [typed(0, &[ESCAPE])]);
    assert_eq!(mux.keys(b"z"), [typed(0, b"z")], "the escape is over");
}

#[test]
fn escape_keys() {
    let mut mux = two(Screen::Terminal);
    assert_eq!(mux.keys(b"\x01r"), [Action::Tell(Command::Restart { vm: 0 })]);
    mux.keys(b"\x012");
    assert_eq!(mux.keys(b"\x01s"), [Action::Tell(Command::Stop { vm: 1 })]);
    assert_eq!(mux.keys(b"\x01z"), [Action::Tell(Command::Pause { vm: 1 })]);
    assert!(shown(&mux.heard(&Heard::Paused { vm: 1 })).contains("two is paused; Ctrl-A z"));
    assert!(shown(&mux.keys(b"\x01h")).contains("2 two (paused)"));
    assert_eq!(mux.keys(b"\x01z"), [Action::Tell(Command::Resume { vm: 1 })]);
    assert!(shown(&mux.heard(&Heard::Resumed { vm: 1, microseconds: 9 })).contains("two goes on"));
    let twice = [Action::Tell(Command::Pause { vm: 1 }), Action::Tell(Command::Resume { vm: 1 })];
    assert_eq!(mux.keys(b"\x01z\x01z"), twice, "a pause that is under way is taken back");
    assert_eq!(mux.keys(b"\x01z\x01z"), twice);
    mux.heard(&Heard::Paused { vm: 1 });
    mux.heard(&Heard::Stopped { vm: 1, reason: StopReason::Killed, restarts: false });
    assert_eq!(mux.keys(b"\x01z"), [Action::Tell(Command::Pause { vm: 1 })], "a new life is not paused");
    assert!(shown(&mux.keys(b"\x01k")).contains("no service serves this VM"));
    let service = |service, vm, name: &str, crashes| Heard::Service {
        service,
        vm,
        name: name.into(),
        crashes,
        exits: 0,
        ticks: 0,
    };
    mux.heard(&service(3, 1, "console", 0));
    mux.heard(&service(4, 0, "other", 0));
    assert_eq!(mux.keys(b"\x01k"), [Action::Tell(Command::KillService { service: 3 })]);
    assert!(shown(&mux.keys(b"\x01h")).contains("service console, of two\r\n"));
    mux.heard(&service(3, 1, "console", 2));
    let help = shown(&mux.keys(b"\x01h"));
    let order = ["service console, of two (crashed 2 times)", "service other, of one"];
    let places = order.map(|text| help.find(text));
    assert!(places[0].is_some() && places[0] < places[1], "{help}");
    assert_eq!(mux.keys(b"\x01x").last(), Some(&Action::Quit));
    assert!(shown(&mux.keys(b"\x013")).contains("there is no VM 3"));
    assert!(shown(&mux.keys(b"\x01!")).contains("Ctrl-A h"));
    let help = shown(&mux.keys(b"\x01h"));
    assert!(help.contains("*2 two (stopped)") && help.contains(" 1 one"), "{help}");
    assert!(
        help.contains("or start it if it is stopped") && help.contains("the machine ends with the last one"),
        "{help}"
    );
    let alone = shown(&Mux::new(Screen::Terminal, ["one".to_owned()]).keys(b"\x01h"));
    assert!(alone.contains("stop the VM, and with it the machine") && !alone.contains("start it"), "{alone}");
    mux.keys(b"\x01n");
    assert_eq!(mux.keys(b"q"), [typed(0, b"q")], "next after the last is the first");
    mux.keys(b"\x01p");
    assert_eq!(mux.keys(b"q"), [typed(1, b"q")]);
}

#[test]
fn output_behind_is_kept_and_shown_later() {
    let mut mux = two(Screen::Terminal);
    assert_eq!(mux.heard(&console(1, "hello")), []);
    assert!(shown(&mux.keys(b"\x01n")).ends_with("two (2 of 2)\r\nhello"));
    let back = shown(&mux.keys(b"\x01n"));
    assert!(back.starts_with("\r\n"), "remarks start on a line of their own: {back:?}");
    let flood = "x".repeat(100_000);
    mux.heard(&console(1, &flood));
    mux.heard(&console(1, "END"));
    let seen = shown(&mux.keys(b"\x01n"));
    assert!(seen.ends_with("xEND") && seen.len() < 20_000, "the newest is kept, not everything");
}

#[test]
fn together_each_line_has_its_name() {
    let mut mux = two(Screen::Terminal);
    mux.heard(&console(1, "earlier\n"));
    assert!(shown(&mux.keys(b"\x01a")).ends_with("two | earlier\r\n"));
    assert_eq!(mux.heard(&console(0, "par")), []);
    assert_eq!(shown(&mux.heard(&console(1, "b\r\nc"))), "two | b\r\n");
    assert_eq!(shown(&mux.heard(&console(0, "tial\n"))), "one | partial\r\n");
    assert_eq!(mux.keys(b"k"), [typed(0, b"k")]);
    let back = shown(&mux.keys(b"\x011"));
    assert!(back.starts_with("two | c\r\n"), "begun lines are not lost: {back:?}");
}

#[test]
fn pipes_get_lines_with_names_and_all_bytes_go_to_the_first_vm() {
    let mut mux = two(Screen::Pipe);
    assert_eq!(mux.keys(b"a\x01x\n"), [typed(0, b"a\x01x\n")]);
    assert_eq!(mux.heard(&console(1, "hi\r\n")), [Action::Show(b"two| hi\n".to_vec())]);
    let stop = Heard::Stopped { vm: 1, reason: StopReason::PowerOff, restarts: false };
    assert_eq!(mux.heard(&stop), [Action::Remark(b"turnstile: two: powered off\n".to_vec())]);
    mux.heard(&console(0, "no newline"));
    assert_eq!(mux.ended(), [Action::Show(b"one| no newline\n".to_vec())]);

    let mut alone = Mux::new(Screen::Pipe, ["one".to_owned()]);
    assert_eq!(alone.heard(&console(0, "raw\r\n\x1b[m")), [Action::Show(b"raw\r\n\x1b[m".to_vec())]);
}

#[test]
fn events_are_told() {
    let mut mux = two(Screen::Terminal);
    let start = |boots| Heard::Started { vm: 0, boots, free_memory: 0, free_tables: 0 };
    assert_eq!(shown(&mux.heard(&start(1))), "[turnstile] one starts\r\n");
    assert_eq!(shown(&mux.heard(&start(2))), "[turnstile] one starts (start 2)\r\n");
    mux.heard(&console(0, "half"));
    let stop = Heard::Stopped { vm: 0, reason: StopReason::Crash, restarts: true };
    assert_eq!(shown(&mux.heard(&stop)), "\r\n[turnstile] one: crashed, and starts again\r\n");
    let text = Heard::Text { text: b"turnstile 0.1\nfou".to_vec() };
    assert_eq!(shown(&mux.heard(&text)), "[turnstile] turnstile 0.1\r\n");
    assert_eq!(shown(&mux.heard(&Heard::Text { text: b"r\r\n".to_vec() })), "[turnstile] four\r\n");
    assert_eq!(mux.heard(&console(9, "who?")), [], "a VM that does not exist");
}
