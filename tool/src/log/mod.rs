// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `run --log`: consoles in files, with times, and reports of crashes beside them (docs/src/logs.md).
//!
//! What cannot be written changes nothing for the machine: it is said once, counted, and told in the file when there is room again.

mod crash;
mod rotated;

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crash::Known;
use rotated::{Rotated, put_aside};
use rustix::fs::FlockOperation;
use turnstile_link::StopReason;

use crate::cli;
use crate::failure::{Context, Failure, Result};
use crate::gather::{Gatherer, Line};
use crate::layout::{Layout, disk_full};
use crate::session::{Heard, describe_stop, start_failure};

/// The name of the hypervisor's own file; no VM's name begins so.
const OWN: &str = "_hypervisor";
/// How long the rest of a line is waited for: a prompt, and what is typed behind it.
const PATIENCE: Duration = Duration::from_secs(2);
/// What a line that is not a guest's begins with.
const MARK: &str = "[turnstile] ";

/// The files of a machine.
#[derive(Debug)]
pub struct Log {
    machine: String,
    names: Vec<String>,
    /// Of each VM, and last of the hypervisor's own text.
    files: Vec<Target>,
    begun: Gatherer,
    /// How many older reports are kept.
    count: usize,
    /// Whether it has been said that something cannot be written.
    failing: bool,
    /// The folder, locked against other machines.
    _lock: File,
}

/// A console's file.
#[derive(Debug)]
struct Target {
    file: Rotated,
    /// Bytes that could not be written.
    lost: u64,
    known: Known,
}

impl Log {
    /// Opens the files of the machine `machine`, whose VMs have these names.
    pub fn open(options: &cli::Log, machine: String, names: Vec<String>) -> Result<Option<Self>> {
        let Some(folder) = &options.folder else { return Ok(None) };
        let doing = || format!("cannot write logs to {}", folder.display());
        if folder.exists() && !folder.is_dir() {
            let what = format!("{}: {} is not a folder", doing(), folder.display());
            return Err(Failure::usage(what).help("--log names the folder that gets the files"));
        }
        std::fs::create_dir_all(folder).context(doing)?;
        let lock = File::open(folder).context(doing)?;
        if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            let what = format!("another machine writes its logs to {}", folder.display());
            return Err(Failure::failed(what).help("give each machine a folder of its own"));
        }
        let target = |name: &str| {
            let path = folder.join(format!("{name}.log"));
            let file = Rotated::open(path.clone(), options.size, options.count);
            let file = file.map_err(|error| match error.kind() {
                ErrorKind::StorageFull => disk_full(&path, 1),
                _ => Failure::failed(format!("cannot write {}: {error}", path.display())),
            })?;
            Ok(Target { file, lost: 0, known: Known::default() })
        };
        let files = names.iter().map(String::as_str).chain([OWN]).map(target).collect::<Result<_>>()?;
        let begun = Gatherer::new(names.len() + 1);
        Ok(Some(Log { machine, names, files, begun, count: options.count, failing: false, _lock: lock }))
    }

    /// Takes what was heard; returns what is to be said of it, if it cannot be written, or can again.
    pub fn hear(&mut self, heard: &Heard) -> Option<String> {
        let own = self.names.len();
        let index = heard.vm().map_or(own, usize::from);
        let mut lines = match heard {
            Heard::Console { vm, text } if usize::from(*vm) < own => self.begun.push(index, text),
            Heard::Text { text } => self.begun.push(own, text),
            _ => return self.event(heard, index),
        };
        lines.extend(self.begun.overdue(PATIENCE));
        self.write_all(lines)
    }

    /// What happened to a VM, in its file.
    fn event(&mut self, heard: &Heard, index: usize) -> Option<String> {
        let text = match heard {
            Heard::Hello { hypervisor, .. } => format!("{}: hypervisor {hypervisor} is up", self.machine),
            Heard::Started { boots, .. } => format!("start {boots}"),
            Heard::Stopped { reason, restarts, .. } => {
                let then = if *restarts { ", and starts again" } else { "" };
                format!("{}{then}", describe_stop(*reason).replace('-', " "))
            }
            Heard::Crashed { text, .. } => text.clone(),
            Heard::Fault { text } => format!("fault in the hypervisor: {text}"),
            Heard::InputWaits { bytes, .. } => {
                format!("its guest does not read its input: {bytes} bytes wait")
            }
            Heard::InputDropped { bytes, .. } => format!("its guest did not read {bytes} bytes of its input"),
            Heard::Done { .. } => "every VM has stopped".to_owned(),
            _ => return None,
        };
        // What was written before comes before.
        let said = self.begun.take(index).and_then(|line| self.write(line));
        let said = said.or(self.write(Line {
            index,
            text: format!("{MARK}{text}").into(),
            time: SystemTime::now(),
        }));
        said.or(self.crash(heard, index))
    }

    /// Keeps what is said of a crash, and writes the report when all of it is known.
    fn crash(&mut self, heard: &Heard, index: usize) -> Option<String> {
        let known = &mut self.files.get_mut(index)?.known;
        match heard {
            // What no stop has followed, such as memory that was lost, comes before the next life.
            Heard::Started { boots, .. } => {
                let said = self.report(index, false);
                self.files.get_mut(index)?.known.starts = *boots;
                said
            }
            Heard::Crashed { text, .. } | Heard::Fault { text } => {
                known.report.push(text.clone());
                let failure = self.names.get(index).and_then(|name| start_failure(name, text));
                failure.and_then(|_| self.report(index, false))
            }
            Heard::Stopped { reason: StopReason::Crash, restarts, .. } => {
                if known.report.is_empty() {
                    known.report.push("it crashed".to_owned());
                }
                self.report(index, *restarts)
            }
            _ => None,
        }
    }

    /// Writes the report of a crash, if there is one.
    fn report(&mut self, index: usize, restarts: bool) -> Option<String> {
        let name = self.names.get(index).map(String::as_str);
        let target = self.files.get_mut(index)?;
        if target.known.report.is_empty() {
            return None;
        }
        let path = target.file.path().with_file_name(format!("{}.crash.json", name.unwrap_or(OWN)));
        let report = target.known.report(show(SystemTime::now()), &self.machine, name, restarts);
        let text = serde_json::to_string_pretty(&report).unwrap_or_default() + "\n";
        let written = put_aside(&path, self.count).and_then(|()| std::fs::write(&path, text));
        target.known.report.clear();
        self.said(&path, written)
    }

    /// Writes what has been waited for long enough.
    pub fn idle(&mut self) -> Option<String> {
        let lines = self.begun.overdue(PATIENCE);
        self.write_all(lines)
    }

    /// Writes all that is left, when nothing more comes.
    pub fn finish(&mut self) -> Option<String> {
        let lines = self.begun.overdue(Duration::ZERO);
        let said = self.write_all(lines);
        (0..self.files.len()).fold(said, |said, index| said.or(self.report(index, false)))
    }

    fn write_all(&mut self, lines: Vec<Line>) -> Option<String> {
        lines.into_iter().fold(None, |said, line| said.or(self.write(line)))
    }

    fn write(&mut self, Line { index, text, time }: Line) -> Option<String> {
        let target = self.files.get_mut(index)?;
        let mut line = format!("{} ", show(time)).into_bytes();
        line.extend_from_slice(text.strip_suffix(b"\n").unwrap_or(&text).trim_ascii_end());
        line.push(b'\n');
        target.known.line(&line);
        let written = target.append(&line);
        let path = target.file.path().to_owned();
        self.said(&path, written)
    }

    /// Says that files cannot be written, once, and that they can again.
    fn said(&mut self, path: &Path, written: std::io::Result<()>) -> Option<String> {
        match written {
            Err(error) if !self.failing => {
                self.failing = true;
                let why = match error.kind() {
                    ErrorKind::StorageFull => format!("the disk is full; {}", room(path)),
                    _ => error.to_string(),
                };
                let shown = Layout::shown(path);
                Some(format!(
                    "logs: cannot write {shown}: {why}. The machine goes on; what is lost is counted"
                ))
            }
            // Not before all of them have told what they miss.
            Ok(()) if self.failing && self.files.iter().all(|target| target.lost == 0) => {
                self.failing = false;
                Some("logs: files can be written again".to_owned())
            }
            _ => None,
        }
    }
}

impl Target {
    fn append(&mut self, line: &[u8]) -> std::io::Result<()> {
        if self.lost > 0 {
            let missing = format!("{} {MARK}{} bytes are missing here\n", show(SystemTime::now()), self.lost);
            if let Err(error) = self.file.append(missing.as_bytes()) {
                self.lost += line.len() as u64;
                return Err(error);
            }
            self.lost = 0;
        }
        let result = self.file.append(line);
        self.lost += if result.is_err() { line.len() as u64 } else { 0 };
        result
    }
}

/// What is free on the disk of a file.
fn room(path: &Path) -> String {
    let folder: PathBuf = path.parent().map_or_else(PathBuf::new, Path::to_path_buf);
    crate::layout::free(&folder).map_or_else(|_| String::new(), |free| format!("{free} bytes are free"))
}

fn show(time: SystemTime) -> String {
    humantime::format_rfc3339_millis(time).to_string()
}

#[cfg(test)]
mod tests;
