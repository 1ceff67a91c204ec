// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the CPUs of a machine are that a scenario has given up: asked of QEMU's monitor (QMP), before QEMU is ended.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::io::{FdFlags, fcntl_setfd};
use serde_json::{Value, json};
use turnstile::failure::{Context, Result};
use turnstile::qemu::Boot;

/// QEMU answers in milliseconds, unless it is stuck itself.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often the CPUs are looked at, and how long apart: one that goes on is seen elsewhere.
const LOOKS: usize = 3;
const APART: Duration = Duration::from_millis(50);

/// A line to QEMU's monitor.
pub(super) struct Monitor(UnixStream);

impl Monitor {
    /// Adds the line to what is booted; returns QEMU's end, too, which is to be kept until QEMU has been started.
    pub(super) fn add(boot: &mut Boot) -> Result<(Self, UnixStream)> {
        let doing = || "cannot make a line to QEMU's monitor".to_owned();
        let (ours, theirs) = UnixStream::pair().context(doing)?;
        ours.set_read_timeout(Some(PATIENCE)).context(doing)?;
        // QEMU inherits it; a program that is started beside it may, too, which does not matter: nobody waits for the line's end.
        fcntl_setfd(theirs.as_fd(), FdFlags::empty()).map_err(std::io::Error::from).context(doing)?;
        let line = format!("socket,id=monitor,fd={}", theirs.as_raw_fd());
        boot.extra.extend(["-chardev", &line, "-mon", "chardev=monitor,mode=control"].map(Into::into));
        Ok((Monitor(ours), theirs))
    }

    /// Asks where the CPUs are: a line for each look at each of them, or why there is none.
    pub(super) fn ask(&self) -> Vec<String> {
        match self.try_ask() {
            Ok(lines) if lines.is_empty() => vec!["QEMU does not say where its CPUs are".to_owned()],
            Ok(lines) => lines,
            Err(error) => vec![format!("QEMU's monitor does not answer: {error}")],
        }
    }

    fn try_ask(&self) -> std::io::Result<Vec<String>> {
        let mut replies = BufReader::new(&self.0);
        call(&self.0, &mut replies, &json!({ "execute": "qmp_capabilities" }))?;
        let registers = json!({
            "execute": "human-monitor-command",
            "arguments": { "command-line": "info registers -a" }
        });
        let mut lines = Vec::new();
        for _ in 0..LOOKS {
            let reply = call(&self.0, &mut replies, &registers)?;
            lines.extend(places(reply.as_str().unwrap_or_default()));
            std::thread::sleep(APART);
        }
        Ok(lines)
    }
}

/// Gives a command; returns what comes back. Events, and the greeting, may come before that.
fn call(mut to: &UnixStream, from: &mut impl BufRead, command: &Value) -> std::io::Result<Value> {
    writeln!(to, "{command}")?;
    loop {
        let mut line = String::new();
        if from.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let mut reply: Value = serde_json::from_str(&line)?;
        if let Some(answer) = reply.get_mut("return") {
            return Ok(answer.take());
        }
        if let Some(error) = reply.get("error") {
            return Err(std::io::Error::other(error.to_string()));
        }
    }
}

/// Returns, of a dump of all registers, for each CPU the line with the address of its next instruction.
fn places(dump: &str) -> impl Iterator<Item = String> {
    const NAMES: [&str; 4] = ["PC=", "RIP=", "EIP=", "NIP "];
    // On POWER there are the registers of each CPU's interrupt controller, too.
    dump.split("CPU#").skip(1).filter_map(|cpu| {
        let number = cpu.lines().next()?.trim();
        let place = cpu.lines().find(|line| NAMES.iter().any(|name| line.contains(name)))?;
        Some(format!("CPU {number}: {}", place.trim()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cpu_is_placed() {
        let pc = "\nCPU#0\nRAX=1 RBX=2\nR8 =0\nRIP=ffff8000 RFL=00000202 [-------] CPL=0 HLT=1\nES =0\n\nCPU#1\nEAX=0\nEIP=0000fff0 HLT=0\n";
        let lines: Vec<_> = places(pc).collect();
        assert_eq!(
            lines,
            ["CPU 0: RIP=ffff8000 RFL=00000202 [-------] CPL=0 HLT=1", "CPU 1: EIP=0000fff0 HLT=0"]
        );
        assert_eq!(places("CPU#0\n PC=40080000 X00=0\n").collect::<Vec<_>>(), ["CPU 0: PC=40080000 X00=0"]);
        assert_eq!(
            places("CPU#0\nNIP 0000c2d4   LR 0\n").collect::<Vec<_>>(),
            ["CPU 0: NIP 0000c2d4   LR 0"]
        );
        assert_eq!(places("CPU#7[0000]:   QW   NSR CPPR\n").count(), 0);
    }

    #[test]
    fn an_answer_is_found_behind_greeting_and_events() {
        let (ours, _theirs) = UnixStream::pair().expect("a pair");
        let call = |said: &str| super::call(&ours, &mut said.as_bytes(), &json!({ "execute": "stop" }));
        let said = "{\"QMP\": {}}\n{\"event\": \"STOP\"}\n{\"return\": \"done\"}\n";
        assert_eq!(call(said).expect("it answers"), json!("done"));
        assert!(call("{\"error\": {\"desc\": \"no\"}}\n").is_err());
        assert!(call("{\"event\": \"STOP\"}\n").is_err(), "it has ended");
        assert!(call("what\n").is_err());
    }
}
