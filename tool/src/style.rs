// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The colours of what the tool says.

use anstyle::{AnsiColor, Style};

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
