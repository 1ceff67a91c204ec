// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the end-to-end tests share: a folder with a machine in it, and the tool to run there.

#![allow(dead_code, reason = "each test file uses some of it")]

pub mod saved;
pub mod terminal;

use std::fs;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use tempfile::TempDir;

/// A folder with files for one test.
pub struct Folder(TempDir);

impl Folder {
    /// Makes an empty folder.
    pub fn new() -> Self {
        Folder(TempDir::new().expect("a temporary folder"))
    }

    /// Makes a folder with a small kernel `k` and a machine of these VMs in `m.toml`, and a hypervisor `h`.
    pub fn with_vms(names: &[&str]) -> Self {
        let folder = Self::new();
        folder.write("k", &image(4096));
        folder.write("h", &hypervisor(turnstile_link::VERSION));
        let vm = |name: &&str| format!("[[vm]]\nname = \"{name}\"\nkernel = \"k\"\nmemory = \"16MiB\"\n");
        folder.write("m.toml", names.iter().map(vm).collect::<String>().as_bytes());
        folder
    }

    /// The folder's path.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file.
    pub fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path().join(name), bytes).expect("the file can be written");
    }

    /// The tool, to be run in the folder.
    pub fn turnstile(&self) -> Command {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("turnstile"));
        for (name, value) in self.environment() {
            command.env(name, value);
        }
        command.current_dir(self.path()).timeout(std::time::Duration::from_secs(60));
        command
    }

    /// What the tool needs to know: where the checkout is; bundles and sockets go into this folder.
    pub fn environment(&self) -> [(&'static str, PathBuf); 3] {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        [
            ("TURNSTILE_ROOT", root),
            ("CARGO_TARGET_DIR", self.path().join("target")),
            ("XDG_RUNTIME_DIR", self.path().into()),
        ]
    }

    /// `turnstile run m.toml` with the stand-in for QEMU, which plays `play`.
    pub fn run(&self, play: &str) -> Command {
        let mut command = self.turnstile();
        command.args(["run", "m.toml", "--image", "h", "--qemu"]).arg(fake_qemu()).env("FAKE_QEMU", play);
        command
    }

    /// `turnstile check m.toml` of these lines.
    pub fn check(&self, text: &str) -> assert_cmd::assert::Assert {
        self.write("m.toml", text.as_bytes());
        self.turnstile().args(["check", "m.toml"]).assert()
    }
}

/// The program that stands in for QEMU: an example of the package, which `cargo test` builds unless it is told
/// which tests to run.
pub fn fake_qemu() -> PathBuf {
    let tool = assert_cmd::cargo::cargo_bin!("turnstile").to_path_buf();
    let path = tool.with_file_name("examples").join("fake-qemu");
    assert!(path.is_file(), "{} is built by `cargo build -p turnstile --examples`", path.display());
    path
}

/// A file that could be a hypervisor which speaks this version of the serial line.
pub fn hypervisor(version: u16) -> Vec<u8> {
    let mut bytes = image(4096);
    bytes[2000..2016].copy_from_slice(b"\0turnstile-link\0");
    bytes[2016..2018].copy_from_slice(&version.to_le_bytes());
    bytes
}

/// A file that has the header of an arm64 `Image` (Linux, Documentation/arch/arm64/booting.rst, section 4).
pub fn image(size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    bytes[16..24].copy_from_slice(&(size as u64).to_le_bytes());
    bytes[24..32].copy_from_slice(&0xa_u64.to_le_bytes());
    bytes[56..60].copy_from_slice(b"ARM\x64");
    bytes
}
