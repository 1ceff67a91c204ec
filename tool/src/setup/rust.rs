// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The Rust toolchain of the checkout: cargo, and llvm-objcopy from its `llvm-tools` component.
//!
//! `./x` installs the toolchain before it builds this tool; here it is only found again.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::run;
use super::sysroot::{self, Sysroot};
use crate::failure::{Failure, Result};
use crate::isa::Isa;
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

/// What cargo builds for, and what it must be told to do so.
pub struct Target {
    name: &'static str,
    file: Option<&'static str>,
    sysroot: Option<Sysroot>,
    /// Instead of what `.cargo/config.toml` says for the target.
    flags: Option<&'static str>,
}

impl Target {
    /// The bare machine.
    pub fn bare(isa: Isa) -> Self {
        Target { name: isa.target(), file: isa.target_file(), sysroot: None, flags: None }
    }

    /// The bare machine, with programs that run at any address behind an MMU.
    pub fn anywhere(isa: Isa) -> Self {
        let flags = match isa {
            // Where there is an MMU all memory of programs is Normal, and words may lie anywhere in it (Arm ARM B2.5.2).
            Isa::Arm64 => "-Crelocation-model=pie\u{1f}-Ctarget-feature=-strict-align",
            Isa::X86_64 | Isa::Power64 => "-Crelocation-model=pie",
        };
        Target { flags: Some(flags), ..Target::bare(isa) }
    }

    /// Linux, with programs linked statically.
    pub fn linux(layout: &Layout, isa: Isa) -> Result<Self> {
        let sysroot = match isa {
            // Rust has a C library of its own for them.
            Isa::Arm64 | Isa::X86_64 => None,
            Isa::Power64 => Some(sysroot::ensure(layout, isa)?),
        };
        Ok(Target { name: isa.linux_target(), file: None, sysroot, flags: None })
    }

    /// Where cargo works on it, its programs and what builds them. Build scripts look at the variable that lets cargo build the core
    /// library, so in a folder with others each would make the other's libraries old.
    pub fn folder(&self, layout: &Layout) -> PathBuf {
        match self.file {
            None => layout.target().to_path_buf(),
            Some(_) => layout.target().join("with-core"),
        }
    }

    /// Its name, and that of the folder with its programs.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Tells cargo.
    pub fn apply(&self, cargo: &mut Command) {
        match self.file {
            None => cargo.args(["--target", self.name]),
            // Neither is stable: building the core library, and targets that rustc does not know.
            Some(file) => cargo
                .args(["--target", file, "-Zjson-target-spec", "-Zbuild-std=core,alloc,compiler_builtins"])
                .arg("-Zbuild-std-features=compiler-builtins-mem")
                .env("RUSTC_BOOTSTRAP", "1"),
        };
        if let Some(flags) = self.flags {
            cargo.env("CARGO_ENCODED_RUSTFLAGS", flags);
        }
        if let Some(sysroot) = &self.sysroot {
            cargo.env("CARGO_ENCODED_RUSTFLAGS", sysroot.flags());
        }
    }
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
