// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tool as its users run it.

use std::process::Command;

use turnstile::failure::{Context, Result};
use turnstile::layout::Layout;

/// The tool, on the checkout of this run; `./x` builds it beside the suite.
pub fn command(layout: &Layout) -> Result<Command> {
    let suite = std::env::current_exe().context(|| "cannot find the tool".to_owned())?;
    let mut command = Command::new(suite.with_file_name("turnstile"));
    command.env("TURNSTILE_ROOT", layout.root()).env("CARGO_TARGET_DIR", layout.target());
    Ok(command)
}
