// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The Rust toolchain of the checkout: cargo, and llvm-objcopy from its `llvm-tools` component.
//!
//! `./x` installs the toolchain before it builds this tool; here it is only found again.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::run;
use crate::failure::{Failure, Result};
use crate::layout::Layout;

const HELP: &str = "run `./x` from the checkout: it installs the toolchain that rust-toolchain.toml names";

/// A cargo command that runs in the checkout, with the checkout's toolchain.
pub fn cargo(layout: &Layout) -> Command {
    let mut command = Command::new("cargo");
    command.current_dir(layout.root());
    // A cargo that started this tool must not decide which toolchain builds the images.
    for variable in ["RUSTUP_TOOLCHAIN", "CARGO", "RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "RUSTC", "RUSTDOC"]
    {
        command.env_remove(variable);
    }
    command
}

/// Finds llvm-objcopy in the toolchain.
pub fn objcopy(layout: &Layout) -> Result<PathBuf> {
    let mut rustc = Command::new("rustc");
    rustc.current_dir(layout.root()).env_remove("RUSTUP_TOOLCHAIN").args(["--print", "sysroot"]);
    let output = run(&mut rustc).map_err(|failure| failure.help(HELP))?;
    let sysroot = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    find_tool(&sysroot, "llvm-objcopy").ok_or_else(|| {
        Failure::missing("the toolchain has no llvm-objcopy (component llvm-tools)").help(HELP)
    })
}

fn find_tool(sysroot: &Path, name: &str) -> Option<PathBuf> {
    let hosts = std::fs::read_dir(sysroot.join("lib/rustlib")).ok()?;
    hosts.flatten().map(|host| host.path().join("bin").join(name)).find(|path| path.is_file())
}
