// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tool on a terminal.

use std::process::Command;

use rexpect::session::{PtySession, spawn_command};

use super::{Folder, fake_qemu};

const TIMEOUT: Option<u64> = Some(20_000);

/// A shell on a terminal that prints the terminal's mode, runs the tool, and prints code and mode again.
pub struct Terminal {
    /// What is on the terminal, and a way to type.
    pub session: PtySession,
    /// The tool's process.
    pub id: String,
    before: String,
}

impl Terminal {
    /// Starts the tool with these arguments, and the stand-in for QEMU, which plays `play`.
    pub fn start(folder: &Folder, play: &str, arguments: &str) -> Self {
        Self::of(folder, play, &format!("{arguments} --qemu {}", fake_qemu().display()))
    }

    /// Starts the tool with these arguments alone.
    pub fn of(folder: &Folder, play: &str, arguments: &str) -> Self {
        let tool = assert_cmd::cargo::cargo_bin!("turnstile");
        let script = format!(
            "stty rows 30 cols 100; echo before $(stty -g); \
             sh -c 'echo id $$; exec {} {arguments}'; \
             echo code $?; echo after $(stty -g)",
            tool.display()
        );
        let mut command = Command::new("sh");
        command.arg("-c").arg(script).current_dir(folder.path()).env("FAKE_QEMU", play).env("TERM", "xterm");
        command.envs(folder.environment());
        let mut session = spawn_command(command, TIMEOUT).unwrap();
        session.exp_string("before ").unwrap();
        let before = session.read_line().unwrap();
        session.exp_string("id ").unwrap();
        let id = session.read_line().unwrap();
        Terminal { session, id, before }
    }

    /// Waits for a text. On a full screen a word only: between words the cursor may be moved instead of writing a space.
    pub fn expect(&mut self, text: &str) {
        if let Err(error) = self.session.exp_string(text) {
            let error = error.to_string();
            panic!("no {text:?}: {}", error.chars().take(2000).collect::<String>());
        }
    }

    /// Types these keys.
    pub fn press(&mut self, keys: &str) {
        self.session.send(keys).unwrap();
        self.session.flush().unwrap();
    }

    /// The tool has ended with this code, and the terminal's mode is as it was.
    pub fn ended(mut self, code: &str) {
        self.expect("code ");
        assert_eq!(self.session.read_line().unwrap(), code);
        self.expect("after ");
        assert_eq!(self.session.read_line().unwrap(), self.before);
    }
}
