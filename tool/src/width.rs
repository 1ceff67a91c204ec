// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How wide terminals are.

use std::os::fd::AsFd;

/// The width of the terminal on standard output, if it is one.
///
/// A terminal that does not know its size says that it has none (serial lines, some pseudo-terminals): it is taken for a usual one.
pub fn terminal_width() -> Option<u16> {
    width_of(std::io::stdout())
}

/// The size of the terminal on standard output in characters, columns and lines, if it is one and knows it.
pub fn terminal_size() -> Option<(u16, u16)> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    (size.ws_col != 0 && size.ws_row != 0).then_some((size.ws_col, size.ws_row))
}

/// The width of the terminal on standard error, if it is one.
pub fn error_width() -> Option<u16> {
    width_of(std::io::stderr())
}

fn width_of(stream: impl AsFd) -> Option<u16> {
    const USUAL: u16 = 80;
    let size = rustix::termios::tcgetwinsize(stream).ok()?;
    Some(if size.ws_col == 0 { USUAL } else { size.ws_col })
}
