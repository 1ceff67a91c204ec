// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is written, and how: in raw mode on a terminal, or as lines in a pipe.

use turnstile_link::Command;

use crate::prose;

const DIM: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";
/// What a remark on a terminal begins with.
const MARK: &str = "[turnstile] ";

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Write to the screen.
    Show(Vec<u8>),
    /// Write to standard error: what is not a guest's, in a pipe.
    Remark(Vec<u8>),
    /// Type into a VM's console.
    Type {
        /// The VM.
        vm: u8,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// Say how large the terminal of a VM's console is.
    Size {
        /// The VM.
        vm: u8,
        /// Characters of a line.
        columns: u16,
        /// Lines.
        rows: u16,
    },
    /// Tell the hypervisor.
    Tell(Command),
    /// Leave.
    Quit,
}

/// Where and how things are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Screen {
    /// A terminal in raw mode: lines end in CR LF, remarks are dim, keys are interpreted.
    Terminal,
    /// A pipe: lines, each with its VM's name when there are several; no keys.
    Pipe,
}

/// What is written on, with the place of the cursor.
#[derive(Debug)]
pub struct Paper {
    screen: Screen,
    /// Whether the cursor is at the beginning of a line.
    at_start: bool,
    /// A partial line of the hypervisor's own text.
    own_line: Vec<u8>,
    /// How wide the screen is, if that is known.
    width: fn() -> Option<u16>,
}

impl Paper {
    /// Begins with an empty line.
    pub fn new(screen: Screen) -> Self {
        Paper { screen, at_start: true, own_line: Vec::new(), width: || None }
    }

    /// Folds remarks between words where the screen is this wide.
    pub fn folding(self, width: fn() -> Option<u16>) -> Self {
        Paper { width, ..self }
    }

    /// Where things are shown.
    pub fn screen(&self) -> Screen {
        self.screen
    }

    /// Shows bytes as they are.
    pub fn show(&mut self, bytes: Vec<u8>, actions: &mut Vec<Action>) {
        if let Some(&last) = bytes.last() {
            self.at_start = last == b'\n' || last == b'\r';
            actions.push(Action::Show(bytes));
        }
    }

    /// A whole line of a VM, with its name in this width.
    pub fn line(&mut self, name: &str, width: usize, line: &[u8]) -> Action {
        let mut shown = self.line_break();
        match self.screen {
            Screen::Terminal => shown.extend(format!("{DIM}{name:>width$} |{PLAIN} ").bytes()),
            Screen::Pipe => shown.extend(format!("{name}| ").bytes()),
        }
        shown.extend(line);
        shown.extend_from_slice(self.newline());
        self.at_start = true;
        Action::Show(shown)
    }

    /// Shows the hypervisor's line that was begun, and ends the screen's.
    pub fn finish(&mut self, actions: &mut Vec<Action>) {
        let own = std::mem::take(&mut self.own_line);
        if !own.is_empty() {
            actions.push(self.remark(&String::from_utf8_lossy(&own)));
        }
        if !self.at_start && self.screen == Screen::Terminal {
            self.at_start = true;
            actions.push(Action::Show(b"\r\n".to_vec()));
        }
    }

    /// The hypervisor's own text, line by line, as remarks.
    pub fn own_text(&mut self, bytes: &[u8], actions: &mut Vec<Action>) {
        for &byte in bytes {
            match byte {
                b'\r' => {}
                b'\n' => {
                    let line = std::mem::take(&mut self.own_line);
                    if !line.is_empty() {
                        actions.push(self.remark(&String::from_utf8_lossy(&line)));
                    }
                }
                _ => self.own_line.push(byte),
            }
        }
    }

    /// A remark of the tool, on lines of its own.
    pub fn remark(&mut self, text: &str) -> Action {
        let mut shown = self.line_break();
        let place =
            (self.width)().filter(|_| self.screen == Screen::Terminal).map_or(usize::MAX, usize::from);
        for line in prose::wrap(text, place.saturating_sub(MARK.len())).lines() {
            match self.screen {
                Screen::Terminal => shown.extend(format!("{DIM}{MARK}{line}{PLAIN}\r\n").bytes()),
                Screen::Pipe => shown.extend(format!("turnstile: {line}\n").bytes()),
            }
        }
        self.at_start = true;
        match self.screen {
            Screen::Terminal => Action::Show(shown),
            Screen::Pipe => Action::Remark(shown),
        }
    }

    fn line_break(&self) -> Vec<u8> {
        if self.at_start || self.screen == Screen::Pipe { Vec::new() } else { b"\r\n".to_vec() }
    }

    fn newline(&self) -> &'static [u8] {
        if self.screen == Screen::Terminal { b"\r\n" } else { b"\n" }
    }
}
