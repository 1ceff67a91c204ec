// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What process 1 does for the host it is alone on.

use std::io::Write;

use anyhow::{Context, Result};
use rustix::mount::{MountFlags, mount};
use rustix::system::{RebootCommand, reboot};

/// Says whether this process is the host's whole user space.
pub fn is_alone() -> bool {
    std::process::id() == 1
}

/// Mounts the file systems of the kernel: `/dev`, `/proc` and `/sys`.
///
/// # Errors
/// Names the one that cannot be mounted.
pub fn mount_all() -> Result<()> {
    for (kind, place) in [("devtmpfs", "/dev"), ("proc", "/proc"), ("sysfs", "/sys")] {
        mount(kind, place, kind, MountFlags::empty(), None)
            .with_context(|| format!("cannot mount {place}"))?;
    }
    Ok(())
}

/// Switches the host off once everything written has left it.
pub fn power_off() {
    // What cannot be written now is lost either way.
    let _ = std::io::stdout().flush();
    let _ = rustix::termios::tcdrain(std::io::stdout());
    if let Err(error) = reboot(RebootCommand::PowerOff) {
        println!("@error the host cannot be switched off: {error}");
    }
}
