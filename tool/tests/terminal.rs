// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `turnstile run` on a terminal: the keys, and a sane terminal after every way out.

mod common;

use common::{Folder, fake_qemu};
use rexpect::session::{PtySession, spawn_command};

const TIMEOUT: Option<u64> = Some(20_000);
const CTRL_A: char = 'a';

/// A shell on a terminal that prints the terminal's mode, runs the tool, and prints code and mode again.
struct Terminal {
    session: PtySession,
    before: String,
    id: String,
}

impl Terminal {
    fn start(folder: &Folder, play: &str) -> Self {
        let tool = assert_cmd::cargo::cargo_bin!("turnstile");
        let script = format!(
            "echo before $(stty -g); sh -c 'echo id $$; exec {} run m.toml --image h --qemu {}'; \
             echo code $?; echo after $(stty -g)",
            tool.display(),
            fake_qemu().display()
        );
        let mut command = std::process::Command::new("sh");
        command.arg("-c").arg(script).current_dir(folder.path()).env("FAKE_QEMU", play);
        command.envs(folder.environment());
        let mut session = spawn_command(command, TIMEOUT).unwrap();
        session.exp_string("before ").unwrap();
        let before = session.read_line().unwrap();
        session.exp_string("id ").unwrap();
        let id = session.read_line().unwrap();
        Terminal { session, before, id }
    }

    fn expect(&mut self, text: &str) {
        if let Err(error) = self.session.exp_string(text) {
            panic!("no {text:?}: {error}");
        }
    }

    fn escape(&mut self, key: &str) {
        self.session.send_control(CTRL_A).unwrap();
        self.session.send(key).unwrap();
        self.session.flush().unwrap();
    }

    fn type_keys(&mut self, keys: &str) {
        self.session.send(keys).unwrap();
        self.session.flush().unwrap();
    }

    /// The tool has ended with this code, and the terminal is as it was.
    fn ended(mut self, code: &str) {
        self.expect("code ");
        assert_eq!(self.session.read_line().unwrap(), code);
        self.expect("after ");
        assert_eq!(self.session.read_line().unwrap(), self.before);
    }
}

#[test]
fn escape_key_leaves() {
    let folder = Folder::with_vms(&["one"]);
    let mut terminal = Terminal::start(&folder, "echo");
    terminal.expect("hello from one");
    terminal.escape("x");
    terminal.ended("0");
}

#[test]
fn keys_are_raw_and_go_to_the_vm_in_front() {
    let folder = Folder::with_vms(&["one", "two"]);
    let mut terminal = Terminal::start(&folder, "echo");
    terminal.expect("hello from one");
    terminal.type_keys("abc\x03\x1a");
    // Ctrl-C and Ctrl-Z are the guest's.
    terminal.expect("abc\x03\x1a");
    terminal.escape("n");
    terminal.expect("two (2 of 2)");
    terminal.expect("hello from two");
    terminal.escape("h");
    terminal.expect("restart the VM in front");
    terminal.escape("r");
    terminal.expect("two starts (start 2)");
    terminal.escape("a");
    terminal.expect("all together; keys go to two");
    terminal.type_keys("xyz\n");
    terminal.expect("two |");
    terminal.expect("xyz");
    terminal.type_keys("q");
    terminal.ended("0");
}

#[test]
fn machine_ends_by_itself() {
    let folder = Folder::with_vms(&["one"]);
    let mut terminal = Terminal::start(&folder, "poweroff");
    terminal.expect("one: powered off");
    terminal.ended("0");
}

#[test]
fn guest_crashes() {
    let folder = Folder::with_vms(&["one"]);
    let mut terminal = Terminal::start(&folder, "crash");
    terminal.expect("one: crashed");
    terminal.ended("1");
}

#[test]
fn qemu_dies() {
    let folder = Folder::with_vms(&["one"]);
    let mut terminal = Terminal::start(&folder, "die");
    terminal.expect("QEMU ended early");
    terminal.ended("1");
}

#[test]
fn signals() {
    for (signal, code) in [("-TERM", "143"), ("-INT", "130"), ("-HUP", "129"), ("-QUIT", "131")] {
        let folder = Folder::with_vms(&["one"]);
        let mut terminal = Terminal::start(&folder, "echo");
        terminal.expect("hello from one");
        let status = std::process::Command::new("kill").args([signal, terminal.id.trim()]).status().unwrap();
        assert!(status.success());
        terminal.ended(code);
    }
}
