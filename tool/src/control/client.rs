// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A connection to a machine that runs in another process.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::protocol::{Answer, Greeting, Kind, Line, Refusal, Request, VERSION};
use crate::failure::{Context, Failure, Result};
use crate::top::reading::Reading;

/// How long a machine may take to answer: one that does not serve its line would never.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection.
pub struct Client {
    /// The machine's full name.
    pub machine: String,
    stream: UnixStream,
    lines: BufReader<UnixStream>,
}

impl Client {
    /// Connects to the socket of the machine `name`, which has to greet within `patience`.
    pub fn connect(path: &Path, name: &str, patience: Duration) -> Result<Self> {
        let what = || format!("cannot connect to {name}");
        let stream = UnixStream::connect(path).context(what)?;
        let lines = BufReader::new(stream.try_clone().context(what)?);
        let mut client = Client { machine: name.to_owned(), stream, lines };
        client.set_patience(Some(patience))?;
        let greeting = client.line()?.ok_or_else(|| Failure::failed(format!("{name} has just ended")))?;
        match serde_json::from_str::<Greeting>(&greeting) {
            Ok(greeting) if greeting.control == VERSION => client.set_patience(Some(PATIENCE))?,
            Ok(Greeting { control, tool, .. }) => {
                let what =
                    format!("turnstile {tool} runs {name} with version {control} of control, not {VERSION}");
                return Err(Failure::failed(what).help(other_version(name)));
            }
            Err(_) => {
                let what =
                    format!("{name} is run by a turnstile that does not speak version {VERSION} of control");
                return Err(Failure::failed(what).help(other_version(name)));
            }
        }
        Ok(client)
    }

    fn set_patience(&self, patience: Option<Duration>) -> Result<()> {
        let set = self.stream.set_read_timeout(patience);
        let set = set.and_then(|()| self.stream.set_write_timeout(patience));
        set.context(|| format!("cannot use the connection to {}", self.machine))
    }

    /// Reads a line; `None` if the machine has ended.
    fn line(&mut self) -> Result<Option<String>> {
        let mut line = String::new();
        let read = self.lines.read_line(&mut line);
        self.judge(read).map(|read| read.filter(|count| *count > 0).map(|_| line))
    }

    /// Tells the end of the machine from a failure.
    fn judge<T>(&self, result: std::io::Result<T>) -> Result<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {
                Ok(None)
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                let what = format!("{} does not answer", self.machine);
                Err(Failure::failed(what).help("a guest cannot cause this; see what `turnstile run` says"))
            }
            Err(error) => Err(Failure::failed(format!("cannot read from {}: {error}", self.machine))),
        }
    }

    /// Asks for something, and waits for the answer; `None` if the machine has ended.
    pub fn ask<T: DeserializeOwned>(&mut self, request: &Request) -> Result<Option<T>> {
        let sent = self.send(request);
        // Who has closed the connection has perhaps said why.
        self.judge(sent)?;
        loop {
            let Some(line) = self.line()? else { return Ok(None) };
            let line: Line = serde_json::from_str(&line).context(|| self.strange())?;
            match line {
                Line::Event(_) => {}
                Line::Answer(Answer::Ok(value)) => {
                    return serde_json::from_value(value).map(Some).context(|| self.strange());
                }
                Line::Answer(Answer::Error(refusal)) => return Err(failure(refusal)),
            }
        }
    }

    fn strange(&self) -> String {
        format!("this version does not understand what {} answers", self.machine)
    }

    /// Sends a request, and does not wait.
    pub fn send(&mut self, request: &Request) -> std::io::Result<()> {
        let mut line = serde_json::to_vec(request).unwrap_or_default();
        line.push(b'\n');
        self.stream.write_all(&line)
    }

    /// Reads the statistics; `None` if the machine has ended.
    pub fn read(&mut self) -> Result<Option<Reading>> {
        self.ask(&Request::Statistics)
    }

    /// What comes from now on, for as long as the machine runs.
    pub fn events(&mut self) -> Result<impl Iterator<Item = Line> + use<>> {
        self.stream.set_read_timeout(None).context(|| format!("cannot follow {}", self.machine))?;
        let clone = self.stream.try_clone().context(|| format!("cannot follow {}", self.machine))?;
        // What was read already comes first.
        let lines = std::mem::replace(&mut self.lines, BufReader::new(clone));
        let lines = lines.lines().map_while(std::result::Result::ok);
        Ok(lines.filter_map(|line| serde_json::from_str(&line).ok()))
    }

    /// Waits until the machine has ended; false if it has not after `patience`.
    pub fn wait_for_end(&mut self, patience: Duration) -> Result<bool> {
        self.set_patience(Some(patience))?;
        loop {
            match self.line() {
                Ok(None) => return Ok(true),
                Ok(Some(_)) => {}
                Err(_) => return Ok(false),
            }
        }
    }
}

/// Turns a refusal into a failure of the command.
fn failure(refusal: Refusal) -> Failure {
    match refusal.kind {
        Kind::NoSuchVm => {
            Failure::usage(refusal.what).help(format!("the VMs are: {}", refusal.vms.join(", ")))
        }
        Kind::NoSuchService => Failure::usage(refusal.what).help("`turnstile ls` shows which there are"),
        Kind::NoBalloon => Failure::failed(refusal.what)
            .help("write `balloon = true` in its [[vm]], and run the machine again"),
        Kind::NotNow => Failure::failed(refusal.what).help("`turnstile ls` shows what its VMs do"),
        Kind::NotUnderstood | Kind::Busy => Failure::failed(refusal.what),
    }
}

/// What can be done about a machine of another version.
fn other_version(name: &str) -> String {
    let process = name.rsplit_once('-').map_or(name, |(_, process)| process);
    format!("use the turnstile that started it, or end it: kill {process}")
}
