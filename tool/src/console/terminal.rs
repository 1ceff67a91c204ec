// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The terminal in raw mode, and its way back; what is written on it.

use std::io::{IsTerminal, Write};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::failure::{Context, Result};

/// Holds the terminal in raw mode; dropping it restores the terminal, also when a panic unwinds.
pub struct RawTerminal {
    before: Termios,
}

/// Says whether keys can be read from and consoles be shown on a terminal.
pub fn interactive() -> bool {
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
}

/// Writes to standard output, at once.
pub fn show(bytes: &[u8]) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush())
}

/// Writes to standard error, if that is possible.
pub fn remark(bytes: &[u8]) {
    let _ = std::io::stderr().write_all(bytes);
}

impl RawTerminal {
    /// Puts the terminal into raw mode: every key comes at once and means nothing to the terminal.
    pub fn enter() -> Result<Self> {
        let stdin = std::io::stdin();
        let before = tcgetattr(&stdin).context(|| "cannot read the terminal's mode".into())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&stdin, OptionalActions::Flush, &raw)
            .context(|| "cannot set the terminal's mode".into())?;
        Ok(RawTerminal { before })
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        // A guest may have left colours, another character set or a hidden cursor behind.
        let _ = show(b"\x1b[0m\x1b(B\x1b[?25h");
        // What was typed ahead was meant for the guest: the shell must not run it.
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Flush, &self.before);
    }
}
