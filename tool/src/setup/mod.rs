// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Gets what the tool needs and a fresh machine lacks: QEMU, a Debian guest, the bare-metal images.
//!
//! Nothing here changes the system's configuration. Packages for this machine are installed only as root and
//! only by the distribution's own package manager; everything else goes into the checkout's `.cache` folder.

pub(crate) mod apt;
pub(crate) mod board;
pub mod bochs;
pub mod chromium;
pub mod debian;
pub(crate) mod doctor;
mod fetch;
pub mod images;
pub(crate) mod initramfs;
pub mod monitor;
pub(crate) mod packages;
pub mod peers;
pub mod qemu;
pub mod rust;
pub mod server;
pub mod service;
pub mod space;
pub(crate) mod sysroot;
pub mod toolstack;
pub mod u_boot;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::failure::{Context, Failure, Result};
use crate::layout::Layout;

/// Says whether the tool runs as root and so may install packages.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Finds a program in `PATH`.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// Runs a program to its end; a non-zero status is a failure that shows what the program wrote.
pub fn run(command: &mut Command) -> Result<Output> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().context(|| format!("cannot start {name}"))?;
    if output.status.success() {
        return Ok(output);
    }
    let mut said = String::from_utf8_lossy(&output.stdout).into_owned();
    said.push_str(&String::from_utf8_lossy(&output.stderr));
    Err(Failure::failed(format!("{name} ended with {}", output.status)).details(last_lines(&said, 15)))
}

/// The last `count` lines of a program's output: where the reason of a failure is.
pub fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// Holds a file lock, so that two tools do not download or unpack at once; released when dropped.
pub struct Lock(#[allow(dead_code, reason = "keeps the lock until dropped")] std::fs::File);

impl Lock {
    /// Waits for the lock `name` in `folder`, which is created when missing. Where nothing can be written, the folder itself is
    /// locked: nobody can put anything there, but what is there can be used.
    pub fn take(folder: &Path, name: &str) -> Result<Self> {
        std::fs::create_dir_all(folder).context(|| format!("cannot create {}", folder.display()))?;
        let path = folder.join(name);
        let file = Self::or_folder(std::fs::File::create(&path), folder);
        let file = file.context(|| format!("cannot create {}", path.display()))?;
        if let Err(std::fs::TryLockError::WouldBlock) = file.try_lock() {
            crate::ui::note(&format!("waiting for another one that works in {}", Layout::shown(folder)));
        }
        file.lock().context(|| format!("cannot lock {}", path.display()))?;
        Ok(Lock(file))
    }

    fn or_folder(created: std::io::Result<std::fs::File>, folder: &Path) -> std::io::Result<std::fs::File> {
        use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
        match created {
            Err(error) if matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem) => {
                std::fs::File::open(folder)
            }
            result => result,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    #[test]
    fn folder_that_cannot_be_written_is_locked_itself() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Lock::take(folder.path(), "lock").is_ok());
        let locked = Lock::or_folder(Err(ErrorKind::ReadOnlyFilesystem.into()), folder.path()).unwrap();
        assert!(locked.metadata().unwrap().is_dir() && locked.lock().is_ok());
        assert!(Lock::or_folder(Err(ErrorKind::StorageFull.into()), folder.path()).is_err());
    }
}
