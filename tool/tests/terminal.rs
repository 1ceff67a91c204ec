// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `turnstile run` on a terminal: the keys, and a sane terminal after every way out.

mod common;

use common::Folder;
use common::terminal::Terminal;

const CTRL_A: char = 'a';

/// `turnstile run` on a terminal.
fn run(folder: &Folder, play: &str) -> Terminal {
    Terminal::start(folder, play, "run m.toml --image h")
}

/// Presses a key after the escape key.
fn escape(terminal: &mut Terminal, key: &str) {
    terminal.session.send_control(CTRL_A).unwrap();
    terminal.press(key);
}

#[test]
fn escape_key_leaves() {
    let folder = Folder::with_vms(&["one"]);
    let mut terminal = run(&folder, "echo");
    terminal.expect("hello from one");
    escape(&mut terminal, "x");
    terminal.ended("0");
}

#[test]
fn keys_are_raw_and_go_to_the_vm_in_front() {
    let folder = Folder::with_vms(&["one", "two"]);
    let mut terminal = run(&folder, "echo");
    terminal.expect("hello from one");
    terminal.press("abc\x03\x1a");
    // Ctrl-C and Ctrl-Z are the guest's.
    terminal.expect("abc\x03\x1a");
    escape(&mut terminal, "n");
    terminal.expect("two (2 of 2)");
    terminal.expect("hello from two");
    escape(&mut terminal, "h");
    terminal.expect("restart the VM in front");
    escape(&mut terminal, "r");
    terminal.expect("two starts (start 2)");
    escape(&mut terminal, "a");
    terminal.expect("all together; keys go to two");
    terminal.press("xyz\n");
    terminal.expect("two |");
    terminal.expect("xyz");
    terminal.press("q");
    terminal.ended("0");
}

#[test]
fn machine_ends_by_itself() {
    let folder = Folder::with_vms(&["one"]);
    let mut terminal = run(&folder, "poweroff");
    terminal.expect("one: powered off");
    terminal.ended("0");
}

#[test]
fn guest_crashes() {
    let folder = Folder::with_vms(&["one"]);
    let mut terminal = run(&folder, "crash");
    terminal.expect("one: crashed");
    terminal.ended("1");
}

#[test]
fn qemu_dies() {
    let folder = Folder::with_vms(&["one"]);
    let mut terminal = run(&folder, "die");
    terminal.expect("QEMU ended early");
    terminal.ended("1");
}

#[test]
fn signals() {
    for (signal, code) in [("-TERM", "143"), ("-INT", "130"), ("-HUP", "129"), ("-QUIT", "131")] {
        let folder = Folder::with_vms(&["one"]);
        let mut terminal = run(&folder, "echo");
        terminal.expect("hello from one");
        let status = std::process::Command::new("kill").args([signal, terminal.id.trim()]).status().unwrap();
        assert!(status.success());
        terminal.ended(code);
    }
}
