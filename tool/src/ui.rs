// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the tool says while it works: progress on a terminal, silence in a pipe.
//!
//! Here is also what happens when it cannot say it. A standard output that nobody reads any more is no error, and
//! one that takes no more is; a standard error that cannot be written to changes nothing.

use std::fmt::Arguments;
use std::io::{Error, ErrorKind, IsTerminal, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use comfy_table::{ContentArrangement, LineStyle, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};

use crate::failure::Failure;
use crate::prose;
use crate::style::{DIM, GREEN};
pub use crate::width::{error_width, terminal_width};

/// Says whether standard error is a terminal, where progress and notes go.
pub fn interactive() -> bool {
    std::io::stderr().is_terminal()
}

/// Why standard output could not be written to, the first time.
static LOST: OnceLock<String> = OnceLock::new();
/// Whether a thread has panicked because it could not print.
static STREAM_FAILED: AtomicBool = AtomicBool::new(false);

/// Prints one line on standard output: the tool's `println!`.
pub fn print_line(line: Arguments<'_>) {
    printed(writeln!(std::io::stdout().lock(), "{line}"));
}

/// Takes what became of printing on standard output.
pub fn printed(result: std::io::Result<()>) {
    // The reader of a pipe has seen enough: the command goes on, for its exit code.
    if let Err(error) = result
        && error.kind() != ErrorKind::BrokenPipe
    {
        let _ = LOST.set(error.to_string());
    }
}

/// The failure to write to standard output, if there was one that [`printed`] or a panic told.
pub fn lost_output() -> Option<Failure> {
    LOST.get().map(cannot_write)
}

/// The failure to write to standard output.
pub fn cannot_write(error: impl std::fmt::Display) -> Failure {
    Failure::failed(format!("cannot write to standard output: {error}"))
}

/// Makes the panics of the printing macros, whose only sign is their text, silent and known to [`stream_failed`].
pub fn silence_stream_panics() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let text = panic.payload_as_str().unwrap_or_default();
        if let Some(error) = text.strip_prefix("failed printing to stdout: ") {
            if error != Error::from(rustix::io::Errno::PIPE).to_string() {
                let _ = LOST.set(error.to_owned());
            }
            STREAM_FAILED.store(true, Ordering::Relaxed);
        } else if text.starts_with("failed printing to stderr: ") {
            STREAM_FAILED.store(true, Ordering::Relaxed);
        } else if !(stream_failed() && text == "a scoped thread panicked") {
            usual(panic);
        }
    }));
}

/// Says whether a panic was only about printing.
pub fn stream_failed() -> bool {
    STREAM_FAILED.load(Ordering::Relaxed)
}

/// Prints one line about what the tool does to the machine or decides for the user.
pub fn note(text: &str) {
    let text = match error_width() {
        Some(width) => prose::behind("turnstile: ", text, width.into()),
        None => format!("turnstile: {text}"),
    };
    let _ = writeln!(anstream::stderr(), "{DIM}{text}{DIM:#}");
}

/// Prints sentences on standard output, folded between words.
pub fn say(text: &str) {
    print_line(format_args!("{}", prose::wrap(text, prose::within(terminal_width()))));
}

/// An empty table without lines between its rows; in a terminal its columns fold at words, in a pipe they are as wide as their texts.
pub fn table(width: Option<u16>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::none()));
    if let Some(width) = width {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    }
    table
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
            let (what, seconds) = (&self.what, took.as_secs_f64());
            let _ = writeln!(anstream::stderr(), "{GREEN}✓{GREEN:#} {what} {DIM}({seconds:.1} s){DIM:#}");
        }
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
