// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the tool says while it works: progress on a terminal, silence in a pipe.

use std::io::IsTerminal;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use indicatif::{ProgressBar, ProgressStyle};

/// Errors and failed tests.
pub const RED: Style = AnsiColor::Red.on_default().bold();
/// Hints.
pub const CYAN: Style = AnsiColor::Cyan.on_default().bold();
/// Things that went well.
pub const GREEN: Style = AnsiColor::Green.on_default().bold();
/// Things to note.
pub const YELLOW: Style = AnsiColor::Yellow.on_default().bold();
/// Side remarks.
pub const DIM: Style = Style::new().dimmed();
/// Headings.
pub const BOLD: Style = Style::new().bold();

/// Says whether standard error is a terminal, where progress and notes go.
pub fn interactive() -> bool {
    std::io::stderr().is_terminal()
}

/// Prints one line about what the tool does to the machine or decides for the user.
pub fn note(text: &str) {
    anstream::eprintln!("{DIM}turnstile: {text}{DIM:#}");
}

/// A task in progress: a spinner on a terminal, nothing in a pipe.
pub struct Step {
    bar: ProgressBar,
    what: String,
}

impl Step {
    /// Starts showing the task `what`.
    pub fn start(what: impl Into<String>) -> Self {
        let what = what.into();
        let bar = if interactive() { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
        bar.set_style(Self::style("{spinner} {prefix} {wide_msg:.dim} {elapsed}"));
        bar.set_prefix(what.clone());
        bar.enable_steady_tick(Duration::from_millis(120));
        Step { bar, what }
    }

    /// Starts showing a task with a known number of parts.
    pub fn start_counted(what: impl Into<String>, parts: u64) -> Self {
        let what = what.into();
        let bar = if interactive() { ProgressBar::new(parts) } else { ProgressBar::hidden() };
        bar.set_style(Self::style("{prefix} [{bar:30}] {pos}/{len} {wide_msg:.dim} {elapsed}"));
        bar.set_prefix(what.clone());
        bar.enable_steady_tick(Duration::from_millis(120));
        Step { bar, what }
    }

    fn style(template: &str) -> ProgressStyle {
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
    }

    /// Shows what the task is doing just now.
    pub fn detail(&self, text: impl Into<String>) {
        self.bar.set_message(text.into());
    }

    /// Prints lines of their own while the task goes on.
    pub fn aside(&self, print: impl FnOnce()) {
        self.bar.suspend(print);
    }

    /// Counts one part as done.
    pub fn advance(&self) {
        self.bar.inc(1);
    }

    /// Ends the task: on a terminal its line stays if it took longer than a second.
    pub fn done(self) {
        let took = self.bar.elapsed();
        self.bar.finish_and_clear();
        if interactive() && took > Duration::from_secs(1) {
            anstream::eprintln!("{GREEN}✓{GREEN:#} {} {DIM}({:.1} s){DIM:#}", self.what, took.as_secs_f64());
        }
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
