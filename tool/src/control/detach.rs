// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Machines in the background: `run --detach` runs itself once more, waits until that process has a machine, and leaves it alone.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::names::{full_name, is_wanted};
use crate::failure::{Context, Failure, Kind, Result};

/// The end of the name of a file that says why a machine in the background failed.
const WORDS: &str = ".failed";

/// Starts the machine of this command line in the background, and prints its name.
pub fn detach() -> Result<()> {
    let doing = || "cannot start a process in the background".to_owned();
    let mut command = Command::new(std::env::current_exe().context(doing)?);
    let mut arguments = std::env::args_os().skip(1);
    // Behind the name of the command: what follows may be behind `--`.
    command.args(arguments.next()).arg("--detached").args(arguments);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context(doing)?;
    let mut name = String::new();
    if let Some(output) = child.stdout.take() {
        BufReader::new(output).read_line(&mut name).context(doing)?;
    }
    if name.ends_with('\n') {
        println!("{}", name.trim_end());
        return Ok(());
    }
    // It has said what was wrong.
    let kind = match child.wait().context(doing)?.code() {
        Some(2) => Kind::Usage,
        Some(3) => Kind::Missing,
        _ => Kind::Failed,
    };
    Err(Failure::reported(kind))
}

/// This process, when it is the one in the background.
#[derive(Clone, Copy, Debug)]
pub struct Background(());

impl Background {
    /// Leaves the terminal's session, so that its keys and its end do not reach this process.
    pub fn enter(folder: &Path, name: &str) -> Result<Self> {
        rustix::process::setsid().context(|| "cannot leave the terminal's session".into())?;
        for path in words(folder, name) {
            let _ = fs::remove_file(path);
        }
        Ok(Background(()))
    }

    /// Tells who started this process that the machine is up; from then on nobody hears of it except over its socket.
    pub fn is_up(self, name: &str) -> std::io::Result<()> {
        let mut out = std::io::stdout();
        // Who has gone meanwhile, by Ctrl-C for example, does not want the machine.
        writeln!(out, "{name}").and_then(|()| out.flush())?;
        let nowhere = fs::File::options().read(true).write(true).open("/dev/null")?;
        rustix::stdio::dup2_stdout(&nowhere)?;
        rustix::stdio::dup2_stderr(&nowhere)?;
        Ok(())
    }

    /// Leaves a file that says why the machine failed, if it did.
    pub fn leave_words(self, folder: &Path, name: &str, ended: &Result<()>) {
        let Some(failure) = ended.as_ref().err().filter(|failure| !failure.is_signal()) else { return };
        let words = match failure.what() {
            "" => "a VM crashed, and stayed stopped".to_owned(),
            _ => failure.full(),
        };
        // Nobody could be told that it does not work.
        let _ = fs::write(folder.join(full_name(name) + WORDS), words);
    }
}

/// The files that say why machines of this name failed.
fn words(folder: &Path, wanted: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_of = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()?.strip_suffix(WORDS));
        name.is_some_and(|name| is_wanted(name, wanted))
    };
    entries.map(|entry| entry.path()).filter(is_of).collect()
}

/// Why a machine of this name failed in the background, if that is known.
pub fn last_words(folder: &Path, wanted: &str) -> Option<String> {
    words(folder, wanted).iter().find_map(|path| fs::read_to_string(path).ok())
}
