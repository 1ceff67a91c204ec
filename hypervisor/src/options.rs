// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The hypervisor's command line: words of the form `key=value`.

use crate::line::Mode;

/// What the command line says.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How the serial line is used: `link=framed` or `link=plain` (the default).
    pub line: Mode,
}

/// Parses the command line. Words that mean nothing are handed to `unknown`.
pub fn parse<'a>(line: &'a str, mut unknown: impl FnMut(&'a str)) -> Options {
    let mut options = Options { line: Mode::Plain };
    for word in line.split_ascii_whitespace() {
        match word {
            "link=framed" => options.line = Mode::Framed,
            "link=plain" => options.line = Mode::Plain,
            _ => unknown(word),
        }
    }
    options
}
