// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What process 1 does for the host it is alone on, and where the threads of any run.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::mount::{MountFlags, mount};
use rustix::system::{RebootCommand, finit_module, reboot};
use rustix::thread::{CpuSet, sched_setaffinity};

/// Says whether this process is the host's whole user space.
pub fn is_alone() -> bool {
    std::process::id() == 1
}

/// Where the modules of the host's kernel lie, named so that each comes behind those that it needs.
const MODULES: &str = "/modules";
/// How a module begins that is not compressed.
const ELF: [u8; 4] = *b"\x7fELF";
/// `MODULE_INIT_COMPRESSED_FILE`: the kernel unpacks the module itself (linux/module.h).
const COMPRESSED: i32 = 4;

/// Mounts the file systems of the kernel, tells what that does against speculation, loads its modules and tells where they are.
///
/// # Errors
/// Names the file system that cannot be mounted, or the module that cannot be loaded.
pub fn set_up() -> Result<()> {
    for (kind, place) in [("devtmpfs", "/dev"), ("proc", "/proc"), ("sysfs", "/sys")] {
        mount(kind, place, kind, MountFlags::empty(), None)
            .with_context(|| format!("cannot mount {place}"))?;
    }
    tell_vulnerabilities();
    let Ok(entries) = fs::read_dir(MODULES) else { return Ok(()) };
    let mut modules: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    modules.sort();
    modules.iter().try_for_each(|module| load(module))?;
    tell_modules();
    Ok(())
}

/// Tells where the modules' code is, a line `@module name address` for each: by it a table of symbols of another boot is
/// understood.
fn tell_modules() {
    for module in fs::read_dir("/sys/module").into_iter().flatten().flatten() {
        // What is built in has no sections.
        if let Ok(address) = fs::read_to_string(module.path().join("sections/.text")) {
            println!("@module {} {}", module.file_name().display(), address.trim_end());
        }
    }
}

/// Tells what the kernel does against each weakness of the CPU that it knows, a line `@vulnerability name state`: it is part of
/// what an exit costs.
fn tell_vulnerabilities() {
    let entries = fs::read_dir("/sys/devices/system/cpu/vulnerabilities").into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    files.sort();
    for file in files {
        if let (Some(name), Ok(state)) = (file.file_name(), fs::read_to_string(&file)) {
            println!("@vulnerability {} {}", name.display(), state.trim_end());
        }
    }
}

fn load(module: &Path) -> Result<()> {
    let name = || format!("cannot load the module {}", module.display());
    let mut file = File::open(module).with_context(name)?;
    let mut magic = [0; ELF.len()];
    file.read_exact(&mut magic).with_context(name)?;
    let flags = if magic == ELF { 0 } else { COMPRESSED };
    finit_module(&file, c"", flags).with_context(name)
}

/// Where the kernel shows its debugging interface, and in it the scheduler's features.
const DEBUG: &str = "/sys/kernel/debug";
const FEATURES: &str = "/sys/kernel/debug/sched/features";

/// Lets a thread that is woken wait until the running one waits: usually it takes the CPU away from who has waked it, or not, as
/// their shares are.
///
/// # Errors
/// The kernel has no such switch.
pub fn take_turns() -> Result<()> {
    mount("debugfs", DEBUG, "debugfs", MountFlags::empty(), None).context("cannot mount debugfs")?;
    fs::write(FEATURES, "NO_WAKEUP_PREEMPTION").with_context(|| format!("cannot write {FEATURES}"))
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

/// Has the calling thread run on a CPU of the host.
///
/// # Errors
/// The host has no such CPU.
pub fn pin(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).with_context(|| format!("the host has no CPU {cpu} for it"))
}
