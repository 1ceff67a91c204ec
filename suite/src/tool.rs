// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tool as its users run it.

use std::path::PathBuf;
use std::process::Command;

use turnstile::failure::{Context, Result};
use turnstile::layout::Layout;

/// Its program, which `./x` builds beside the suite.
pub fn path() -> Result<PathBuf> {
    let suite = std::env::current_exe().context(|| "cannot find the tool".to_owned())?;
    Ok(suite.with_file_name("turnstile"))
}

/// The tool, on the checkout of this run.
pub fn command(layout: &Layout) -> Result<Command> {
    let mut command = Command::new(path()?);
    command.env("TURNSTILE_ROOT", layout.root()).env("CARGO_TARGET_DIR", layout.target());
    Ok(command)
}
