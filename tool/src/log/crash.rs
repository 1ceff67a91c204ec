// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The report of a crash, for programs.

use std::collections::VecDeque;

use serde::Serialize;

/// The version of the form.
const SCHEMA: u32 = 1;
/// How many of a console's last lines a report has.
const LINES: usize = 50;

/// A report: of a VM, or of the hypervisor itself.
#[derive(Debug, Serialize)]
pub struct Report<'a> {
    schema: u32,
    /// When it was written, RFC 3339.
    pub time: String,
    /// The machine's full name.
    pub machine: &'a str,
    /// The VM; null for the hypervisor.
    pub vm: Option<&'a str>,
    /// How many times it had started.
    pub starts: u32,
    /// Whether it starts again by itself.
    pub restarts: bool,
    /// What the hypervisor said.
    pub report: &'a [String],
    /// The last lines of the console.
    pub console: Vec<&'a str>,
}

/// What is known of a console in case of a crash.
#[derive(Debug, Default)]
pub struct Known {
    /// How many times the VM has started.
    pub starts: u32,
    /// What the hypervisor says of a crash, line by line.
    pub report: Vec<String>,
    console: VecDeque<String>,
}

impl Known {
    /// Takes a line of the console, with its time.
    pub fn line(&mut self, line: &[u8]) {
        if self.console.len() == LINES {
            self.console.pop_front();
        }
        self.console.push_back(String::from_utf8_lossy(line).trim_end().to_owned());
    }

    /// Makes the report of what is known.
    pub fn report<'a>(
        &'a self,
        time: String,
        machine: &'a str,
        vm: Option<&'a str>,
        restarts: bool,
    ) -> Report<'a> {
        let console = self.console.iter().map(String::as_str).collect();
        Report {
            schema: SCHEMA,
            time,
            machine,
            vm,
            starts: self.starts,
            restarts,
            report: &self.report,
            console,
        }
    }
}
