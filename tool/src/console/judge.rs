// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the end of a machine means to the user.

use super::attachment::{Leave, Outcome};
use crate::failure::{Failure, Kind, Result};
use crate::session::Ending;

/// Turns the ending into the exit code and a message.
pub fn judge(leave: &Leave, outcome: &Outcome, ending: &Ending) -> Result<()> {
    match leave {
        Leave::User => return Ok(()),
        Leave::Output(error) => return Err(crate::ui::cannot_write(error)),
        Leave::Signal(signal) => return Err(Failure::signal(*signal)),
        Leave::Version(version) => {
            let ours = turnstile_link::VERSION;
            let what = format!(
                "the hypervisor speaks version {version} of the serial line, and this tool version {ours}"
            );
            return Err(Failure::usage(what).help("build the image again, or leave --image out"));
        }
        Leave::Limit(limit) => {
            let what = format!("stopped: the machine has run for its {} s", limit.as_secs_f64());
            return Err(Failure::failed(what).help("use a larger --timeout, or none"));
        }
        Leave::MachineEnded => {}
    }
    if let Some(fault) = &outcome.fault {
        return Err(Failure::failed(format!("the hypervisor reported a fault of its own: {fault}"))
            .help("please report it with the lines above"));
    }
    if outcome.lost > 0 {
        crate::ui::note(&format!("{} frames on the serial line could not be read", outcome.lost));
    }
    match outcome.done {
        Some(0) => Ok(()),
        // The consoles have told what crashed.
        Some(_) => Err(Failure::reported(Kind::Failed)),
        None if ending.status.success() => {
            Err(Failure::failed("the machine ended before its VMs did").details(ending.messages.clone()))
        }
        None => Err(Failure::failed(format!("QEMU ended early: {}", describe(ending)))
            .details(ending.messages.clone())
            .help(advice(&ending.messages))),
    }
}

/// What can be done about a QEMU that ended with these messages.
fn advice(messages: &str) -> &'static str {
    if messages.contains("Cannot allocate memory") {
        "this computer has too little memory for the machine: lower `memory` in its description"
    } else if messages.contains("Is another process using the image") {
        "another machine has this disk: stop it (`turnstile ls` lists those that run), or give this one a file of its own"
    } else if messages.contains("Could not set up host forwarding rule") {
        "a program of this computer has that port, or only root may have it (below 1024): give --forward another one"
    } else if messages.trim().is_empty() {
        "`turnstile doctor` checks this machine"
    } else {
        "the lines above are QEMU's own; `turnstile doctor` checks this machine"
    }
}

fn describe(ending: &Ending) -> String {
    use std::os::unix::process::ExitStatusExt;
    match ending.status.signal() {
        Some(9) => "it was killed (signal 9)".to_owned(),
        Some(signal) => format!("signal {signal} ended it"),
        None => ending.status.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_fits_what_qemu_said() {
        assert!(!advice("\n").contains("lines above"));
        let text = "qemu: -device nvme,drive=nvme0: Failed to get \"write\" lock\nIs another process using the image [a.img]?\n";
        assert!(advice(text).contains("`turnstile ls` lists"));
        let text =
            "qemu: -netdev user,id=net0: Could not set up host forwarding rule 'tcp:127.0.0.1:80-:22'\n";
        assert!(advice(text).contains("give --forward another one"));
        assert!(advice("qemu: it is broken\n").contains("lines above"));
        let text = "qemu: cannot set up guest memory 'mach-virt.ram': Cannot allocate memory\n";
        assert!(advice(text).contains("lower `memory`"));
    }
}
