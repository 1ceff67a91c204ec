// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is heard from a machine as lines of JSON: each with its time, and with the name of the VM that it is about.
//!
//! A guest's console comes byte by byte. Programs get whole lines; a line that its guest does not end, such as a prompt, comes when
//! nothing has followed for a while.

use std::time::{Duration, SystemTime};

use serde::Serialize;

use crate::gather::{self, Gatherer};
use crate::session::Heard;

/// How long the rest of a line is waited for.
const PATIENCE: Duration = Duration::from_millis(200);

/// One line.
#[derive(Serialize)]
struct Line<'a> {
    time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(flatten)]
    heard: &'a Heard,
}

/// Makes the lines.
#[derive(Debug)]
pub struct Lines {
    names: Vec<String>,
    /// Of each VM, and last of the hypervisor's own text.
    begun: Gatherer,
}

impl Lines {
    /// Starts with the names of the VMs, in the order of the bundle.
    pub fn new(names: Vec<String>) -> Self {
        let begun = Gatherer::new(names.len() + 1);
        Lines { names, begun }
    }

    /// Takes what was heard; returns the lines that are complete by that.
    pub fn heard(&mut self, heard: &Heard) -> Vec<u8> {
        let mut out = Vec::new();
        match heard {
            Heard::Console { vm, text } if usize::from(*vm) < self.names.len() => {
                self.text(usize::from(*vm), text, &mut out);
            }
            // How input flows is the session's business, and ports have their own connections.
            Heard::Console { .. }
            | Heard::Room { .. }
            | Heard::Port { .. }
            | Heard::PortRoom { .. }
            | Heard::PortClosed { .. } => {}
            Heard::Text { text } => self.text(self.names.len(), text, &mut out),
            // What a VM wrote before its end comes before its end.
            Heard::Stopped { .. } | Heard::Crashed { .. } | Heard::Done { .. } | Heard::Fault { .. } => {
                out = self.finish();
                self.line(heard, &mut out);
            }
            _ => self.line(heard, &mut out),
        }
        out.extend(self.overdue(PATIENCE));
        out
    }

    /// The lines whose ends have been waited for long enough.
    pub fn idle(&mut self) -> Vec<u8> {
        self.overdue(PATIENCE)
    }

    /// All that is left, when nothing more comes.
    pub fn finish(&mut self) -> Vec<u8> {
        self.overdue(Duration::ZERO)
    }

    fn text(&mut self, index: usize, text: &[u8], out: &mut Vec<u8>) {
        let lines = self.begun.push(index, text);
        self.lines(lines, out);
    }

    fn overdue(&mut self, patience: Duration) -> Vec<u8> {
        let mut out = Vec::new();
        let lines = self.begun.overdue(patience);
        self.lines(lines, &mut out);
        out
    }

    fn lines(&self, lines: Vec<gather::Line>, out: &mut Vec<u8>) {
        for gather::Line { index, text, .. } in lines {
            let vm = u8::try_from(index).ok().filter(|_| index < self.names.len());
            let heard = match vm {
                Some(vm) => Heard::Console { vm, text },
                None => Heard::Text { text },
            };
            self.line(&heard, out);
        }
    }

    fn line(&self, heard: &Heard, out: &mut Vec<u8>) {
        // `Vm` itself says the name.
        let vm = heard.vm().filter(|_| !matches!(heard, Heard::Vm { .. }));
        let name = vm.and_then(|vm| self.names.get(usize::from(vm))).map(String::as_str);
        let time = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
        if let Ok(line) = serde_json::to_vec(&Line { time, name, heard }) {
            out.extend(line);
            out.push(b'\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gather::MAX_LINE;

    fn values(bytes: &[u8]) -> Vec<serde_json::Value> {
        std::str::from_utf8(bytes).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn console(vm: u8, text: &str) -> Heard {
        Heard::Console { vm, text: text.into() }
    }

    #[test]
    fn lines_are_whole_and_have_a_name_and_a_time() {
        let mut lines = Lines::new(vec!["one".into(), "two".into()]);
        assert!(lines.heard(&console(1, "a")).is_empty());
        assert!(lines.heard(&console(0, "b")).is_empty());
        let shown = values(&lines.heard(&console(1, "c\nd\ne")));
        let texts: Vec<_> = shown.iter().map(|line| line["text"].as_str().unwrap()).collect();
        assert_eq!(texts, ["ac\n", "d\n"]);
        assert!(shown.iter().all(|line| line["name"] == "two" && line["vm"] == 1));
        assert!(humantime::parse_rfc3339(shown[0]["time"].as_str().unwrap()).is_ok());
        let left = values(&lines.finish());
        assert_eq!(left.len(), 2);
        assert_eq!((&left[0]["text"], &left[1]["text"]), (&"b".into(), &"e".into()));
        assert!(lines.finish().is_empty());
    }

    #[test]
    fn a_prompt_comes_after_a_while_and_before_the_end() {
        let mut lines = Lines::new(vec!["one".into()]);
        assert!(lines.heard(&console(0, "# ")).is_empty());
        assert!(lines.idle().is_empty());
        std::thread::sleep(PATIENCE);
        assert_eq!(values(&lines.idle())[0]["text"], "# ");
        lines.heard(&console(0, "bye"));
        let end = Heard::Done { crashed: 0 };
        let shown = values(&lines.heard(&end));
        assert_eq!((&shown[0]["text"], &shown[1]["type"]), (&"bye".into(), &"done".into()));
        assert!(shown[1].get("name").is_none());
    }

    #[test]
    fn long_lines_come_in_pieces() {
        let mut lines = Lines::new(vec!["one".into()]);
        let shown = values(&lines.heard(&console(0, &"x".repeat(MAX_LINE + 7))));
        assert_eq!(shown.len(), 1);
        assert!(lines.heard(&console(3, "no such VM\n")).is_empty());
    }
}
