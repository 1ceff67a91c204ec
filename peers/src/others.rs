// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Other monitors than this one, each a program with a virtual machine of its own, and where on the host their threads run: vCPUs
//! on the first CPUs, one each, and all other threads of each monitor on one behind those.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::thread::{CpuSet, Pid, sched_setaffinity};

/// How the name of a thread begins in which QEMU runs a vCPU.
const VCPU: &str = "CPU ";
/// How often it is looked for, and how long.
const TICK: Duration = Duration::from_millis(10);
const PATIENCE: Duration = Duration::from_secs(60);

/// The commands in a file: a word in each line, and an empty line behind each command.
pub fn commands(text: &str) -> Vec<Vec<&str>> {
    let commands =
        text.split("\n\n").map(|command| command.lines().filter(|line| !line.is_empty()).collect());
    commands.filter(|command: &Vec<&str>| !command.is_empty()).collect()
}

/// Runs the commands in this file at the same time, each with its output on this one's, until all have ended.
///
/// # Errors
/// Says which one cannot be run, or failed.
pub fn run(file: &Path) -> Result<()> {
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let commands = commands(&text);
    let count = commands.len();
    let mut running = Vec::new();
    for (number, command) in commands.into_iter().enumerate() {
        let [program, words @ ..] = command.as_slice() else { continue };
        // What it starts inherits its CPU.
        crate::host::pin(count + number)?;
        let child = Command::new(program).args(words).stdin(Stdio::null()).spawn();
        let mut child = child.with_context(|| format!("cannot start {program}"))?;
        pin_vcpu(&mut child, number)?;
        running.push((program.to_owned(), child));
    }
    for (program, mut child) in running {
        let status = child.wait().with_context(|| format!("cannot wait for {program}"))?;
        ensure!(status.success(), "{program} ended with {status}");
    }
    Ok(())
}

/// Has the vCPU of a monitor run on a CPU, once there is one.
fn pin_vcpu(monitor: &mut Child, cpu: usize) -> Result<()> {
    let threads = format!("/proc/{}/task", monitor.id());
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        for thread in fs::read_dir(&threads).into_iter().flatten().flatten() {
            let name = fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
            let number = thread.file_name().to_string_lossy().parse().ok().and_then(Pid::from_raw);
            if let (true, Some(thread)) = (name.starts_with(VCPU), number) {
                let mut set = CpuSet::new();
                set.set(cpu);
                return sched_setaffinity(Some(thread), &set)
                    .with_context(|| format!("the host has no CPU {cpu} for the vCPU"));
            }
        }
        if let Some(status) = monitor.try_wait()? {
            bail!("the monitor ended with {status}");
        }
        std::thread::sleep(TICK);
    }
    bail!("no thread of the monitor runs a vCPU")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_words_in_lines() {
        let two = "qemu\n-append\nconsole=ttyAMA0 quiet\n\nqemu\n-S\n";
        assert_eq!(commands(two), [vec!["qemu", "-append", "console=ttyAMA0 quiet"], vec!["qemu", "-S"]]);
        assert!(commands("").is_empty() && commands("\n\n\n").is_empty());
    }
}
