// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A machine in the background, controlled by the tool's commands as a user gives them.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use turnstile::failure::{Context, Failure, Result};
use turnstile::layout::Layout;
use turnstile::setup::qemu::Qemu;

use super::scenario::guest;
use super::tool;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often it is looked.
const TICK: Duration = Duration::from_millis(100);
/// What the guest says when it waits for a line.
const PROMPT: &str = "echo> ";

/// Starts a machine of two VMs in the background, stops, starts and restarts them, and types into a console that two watch.
pub fn check(layout: &Layout, qemu: &Qemu) -> Result<()> {
    let folder = layout.bundles().join("control");
    let config = folder.join("pair.toml");
    let doing = || format!("cannot write {}", config.display());
    fs::create_dir_all(&folder).context(doing)?;
    let vms = guest("one", "echo", "16MiB", "ports = [\"agent\"]") + &guest("two", "echo", "16MiB", "");
    fs::write(&config, vms).context(doing)?;
    let user = User { layout, sockets: folder.clone() };
    let program = qemu.path.to_string_lossy();
    let name = user.says(&["run", "--detach", &config.to_string_lossy(), "--qemu", &program])?;
    let result = control(&user, name.trim_end());
    if result.is_err() {
        // So that it does not go on without anybody.
        let _ = user.says(&["stop", name.trim_end()]);
    }
    result
}

fn control(user: &User<'_>, machine: &str) -> Result<()> {
    user.waits_for(machine, "one", PROMPT, 1)?;
    user.waits_for(machine, "two", PROMPT, 1)?;
    let (mut first, mut second) = (user.console(machine, "two")?, user.console(machine, "two")?);
    first.types("hello, guest\r")?;
    first.hears("@echo hello, guest")?;
    second.hears("@echo hello, guest")?;
    let port = user.attach(&["port", machine, "one", "agent"])?;
    user.waits_for_port(true)?;
    if user.says(&["port", machine, "one", "agent"]).is_ok() {
        return Err(Failure::failed("two programs are at a port"));
    }
    user.says(&["stop", machine, "one"])?;
    user.sees(&["one stopped 1", "two running 1"])?;
    // Its guest is gone.
    port.ends()?;
    user.waits_for_port(false)?;
    user.says(&["start", machine, "one"])?;
    user.says(&["restart", machine, "two"])?;
    user.sees(&["one running 2", "two running 2"])?;
    user.waits_for(machine, "two", PROMPT, 3)?;
    user.says(&["stop", machine, "one"])?;
    second.types("quit\r")?;
    // The last VM has powered off.
    first.ends()?;
    second.ends()?;
    user.sees(&[])
}

/// Somebody who gives commands; the sockets are in a folder of this test.
struct User<'a> {
    layout: &'a Layout,
    sockets: PathBuf,
}

impl User<'_> {
    fn command(&self, arguments: &[&str]) -> Result<Command> {
        let mut command = tool::command(self.layout)?;
        command.args(arguments).env("XDG_RUNTIME_DIR", &self.sockets);
        Ok(command)
    }

    /// Gives a command that has to succeed; returns what it writes.
    fn says(&self, arguments: &[&str]) -> Result<String> {
        let output = self.command(arguments)?.output().context(|| "cannot run the tool".to_owned())?;
        if !output.status.success() {
            let what = format!("`turnstile {}` failed: {}", arguments.join(" "), output.status);
            return Err(Failure::failed(what).details(String::from_utf8_lossy(&output.stderr)));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Waits until the console of a VM has said a text so many times; in its last line each time, so that there is no more.
    fn waits_for(&self, machine: &str, vm: &str, text: &str, times: usize) -> Result<()> {
        let begin = Instant::now();
        loop {
            let said = self.says(&["logs", machine, vm])?;
            if said.matches(text).count() >= times {
                return Ok(());
            }
            if begin.elapsed() > PATIENCE {
                return Err(
                    Failure::failed(format!("{vm} has not said `{text}` {times} times")).details(said)
                );
            }
            std::thread::sleep(TICK);
        }
    }

    /// Checks what `ls` lists: of each VM its name, state and starts.
    fn sees(&self, expected: &[&str]) -> Result<()> {
        let said = self.says(&["ls", "--json"])?;
        let list: serde_json::Value =
            serde_json::from_str(&said).context(|| "`ls --json` is no JSON".into())?;
        let machines = list["machines"].as_array().into_iter().flatten();
        let vms = machines.flat_map(|machine| machine["vms"].as_array().into_iter().flatten());
        let word = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let found: Vec<String> =
            vms.map(|vm| format!("{} {} {}", word(&vm["name"]), word(&vm["state"]), vm["starts"])).collect();
        match found == expected {
            true => Ok(()),
            false => Err(Failure::failed(format!("`ls` lists {found:?}, not {expected:?}"))),
        }
    }

    /// Waits until a program is at the port, or none is.
    fn waits_for_port(&self, connected: bool) -> Result<()> {
        let begin = Instant::now();
        loop {
            let said = self.says(&["ls", "--json"])?;
            let list: serde_json::Value =
                serde_json::from_str(&said).context(|| "`ls --json` is no JSON".into())?;
            if list["machines"][0]["ports"][0]["connected"] == connected {
                return Ok(());
            }
            if begin.elapsed() > PATIENCE {
                return Err(Failure::failed("`ls` does not say who is at the port").details(said));
            }
            std::thread::sleep(TICK);
        }
    }

    fn console(&self, machine: &str, vm: &str) -> Result<Console> {
        self.attach(&["console", machine, vm])
    }

    /// Gives a command that goes on, in a pipe.
    fn attach(&self, arguments: &[&str]) -> Result<Console> {
        let mut command = self.command(arguments)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().context(|| "cannot run the tool".to_owned())?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(input), Some(output)) => Ok(Console { child, input, lines: BufReader::new(output) }),
            _ => Err(Failure::failed("the console has no pipes")),
        }
    }
}

/// A console or a port in a pipe.
struct Console {
    child: Child,
    input: ChildStdin,
    lines: BufReader<ChildStdout>,
}

impl Console {
    fn types(&mut self, text: &str) -> Result<()> {
        self.input.write_all(text.as_bytes()).context(|| "cannot type into a console".into())
    }

    /// Reads until a line has this text.
    fn hears(&mut self, text: &str) -> Result<()> {
        let mut line = String::new();
        while !line.contains(text) {
            line.clear();
            let count = self.lines.read_line(&mut line).context(|| "cannot read from a console".into())?;
            if count == 0 {
                return Err(Failure::failed(format!("the console ended without `{text}`")));
            }
        }
        Ok(())
    }

    fn ends(mut self) -> Result<()> {
        let status = self.child.wait().context(|| "cannot wait for a console".into())?;
        match status.success() {
            true => Ok(()),
            false => Err(Failure::failed(format!("a console ended with {status}"))),
        }
    }
}
