// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What went wrong, what to do about it, and the exit code that says so.
//!
//! Every command returns [`Result`]; `main` prints the failure once, on standard error.

use std::fmt;
use std::io::Write;
use std::process::ExitCode;

use crate::prose;

/// The tool's result.
pub type Result<T> = std::result::Result<T, Failure>;

/// The class of a failure, which is the exit code of the tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Something that was tried did not work: exit code 1.
    Failed = 1,
    /// The command line or a configuration file is wrong: exit code 2.
    Usage = 2,
    /// Something that the tool needs is not on this machine: exit code 3.
    Missing = 3,
}

/// A failure for the user: one sentence, details when there are any, and what to do.
#[derive(Debug)]
pub struct Failure {
    kind: Kind,
    what: String,
    details: Option<String>,
    help: Option<String>,
    signal: Option<i32>,
    silent: bool,
}

impl Failure {
    fn new(kind: Kind, what: impl Into<String>) -> Self {
        Failure { kind, what: what.into(), details: None, help: None, signal: None, silent: false }
    }

    /// Makes a failure of something that was tried.
    pub fn failed(what: impl Into<String>) -> Self {
        Self::new(Kind::Failed, what)
    }

    /// Makes a failure of the command line or of a configuration file.
    pub fn usage(what: impl Into<String>) -> Self {
        Self::new(Kind::Usage, what)
    }

    /// Makes a failure of the machine: something has to be installed first.
    pub fn missing(what: impl Into<String>) -> Self {
        Self::new(Kind::Missing, what)
    }

    /// Makes a failure about which everything has been printed already.
    pub fn reported(kind: Kind) -> Self {
        Failure { silent: true, ..Self::new(kind, "") }
    }

    /// Makes the ending by a signal: exit code 128 + its number, as a shell would report it.
    pub fn signal(number: i32) -> Self {
        Failure { signal: Some(number), silent: true, ..Self::new(Kind::Failed, "") }
    }

    /// Adds what the user can do about it.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Adds the output of a program, or other lines that explain the failure.
    pub fn details(mut self, details: impl Into<String>) -> Self {
        let details = details.into();
        self.details = (!details.trim().is_empty()).then(|| details.trim_end().to_owned());
        self
    }

    /// Makes it a failure of the machine: something has to be there first.
    pub fn missing_prerequisite(mut self) -> Self {
        self.kind = Kind::Missing;
        self
    }

    /// Makes it a failure of the command line: the user named something that cannot be used.
    pub fn wrong_choice(mut self) -> Self {
        self.kind = Kind::Usage;
        self
    }

    /// Says first what all this was for.
    pub fn context_line(mut self, what: &str) -> Self {
        self.what = format!("{what}: {}", self.what);
        self
    }

    /// What went wrong, in a sentence.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// What to do about it; empty where nobody knows.
    pub fn advice(&self) -> &str {
        self.help.as_deref().unwrap_or_default()
    }

    /// Whether it is an ending by a signal.
    pub fn is_signal(&self) -> bool {
        self.signal.is_some()
    }

    /// The same failure, which has been told already.
    pub fn silent(mut self) -> Self {
        self.silent = true;
        self
    }

    /// The exit code for the shell.
    pub fn exit_code(&self) -> ExitCode {
        let code = self.signal.map_or(self.kind as i32, |number| 128 + number);
        ExitCode::from(u8::try_from(code).unwrap_or(1))
    }

    /// The failure with its details, for a report of several lines.
    pub fn full(&self) -> String {
        match &self.details {
            Some(details) => format!("{}\n{details}", self.what),
            None => self.to_string(),
        }
    }

    /// Prints the failure on standard error, with colours if that is a terminal.
    pub fn print(&self) {
        if !self.silent {
            // Where else could it be told that this does not work? The exit code still says that there is a failure.
            let _ = self.write(&mut anstream::stderr().lock(), crate::width::error_width());
        }
    }

    fn write(&self, out: &mut impl Write, width: Option<u16>) -> std::io::Result<()> {
        let (red, cyan) = (crate::style::RED, crate::style::CYAN);
        let folded = |label: &str, text: &str| {
            let folded = prose::behind(label, text, width.map_or(usize::MAX, usize::from));
            folded.strip_prefix(label).map(str::to_owned).unwrap_or(folded)
        };
        writeln!(out, "{red}error{red:#}: {}", folded("error: ", &self.what))?;
        if let Some(details) = &self.details {
            for line in details.lines() {
                writeln!(out, "  | {line}")?;
            }
        }
        if let Some(help) = &self.help {
            writeln!(out, "  {cyan}help{cyan:#}: {}", folded("  help: ", help))?;
        }
        Ok(())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        match &self.help {
            Some(help) => write!(f, " ({})", help.lines().next().unwrap_or_default()),
            None => Ok(()),
        }
    }
}

/// Turns any error into a [`Failure`] that starts with what was being done.
pub trait Context<T> {
    /// Prefixes the error with `doing`, a phrase like "cannot write target/bundle".
    fn context(self, doing: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: fmt::Display> Context<T> for std::result::Result<T, E> {
    fn context(self, doing: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| Failure::failed(format!("{}: {error}", doing())))
    }
}
