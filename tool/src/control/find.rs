// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machines that run, and which of them is meant.
//!
//! The sockets lie in a folder of the user's own, one for each machine: `NAME-PROCESS.sock`.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::client::Client;
use super::detach::last_words;
use super::names::is_wanted;
use crate::failure::{Failure, Result};
use crate::layout::Layout;

/// How long a machine may take to greet.
const PATIENCE: Duration = Duration::from_secs(3);

/// Where machines offer their sockets.
pub fn folder(layout: &Layout) -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|folder| folder.is_dir()) {
        Some(folder) => folder.join("turnstile"),
        None => layout.target().join("sessions"),
    }
}

/// A machine that runs.
pub struct Found {
    /// Its full name.
    pub name: String,
    path: PathBuf,
}

impl Found {
    /// Connects to it.
    pub fn connect(&self) -> Result<Client> {
        Client::connect(&self.path, &self.name, PATIENCE)
    }
}

/// All machines that run, by name; the sockets of those that have ended without taking them away are removed.
pub fn running(folder: &Path) -> Vec<Found> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut machines: Vec<Found> = entries
        .filter_map(|entry| {
            let path = entry.path();
            let name = entry.file_name().to_str()?.strip_suffix(".sock")?.to_owned();
            remove_abandoned(&path);
            path.exists().then_some(Found { name, path })
        })
        .collect();
    machines.sort_by(|a, b| a.name.cmp(&b.name));
    machines
}

/// Connects to the machine whose name or process `wanted` names, or to the only one. `command` names the user's choice
/// among several.
pub fn find(layout: &Layout, wanted: Option<&str>, command: &str) -> Result<Client> {
    let folder = folder(layout);
    let mut found = running(&folder);
    let all: Vec<String> = found.iter().map(|machine| machine.name.clone()).collect();
    found.retain(|machine| wanted.is_none_or(|wanted| is_wanted(&machine.name, wanted)));
    let names: Vec<String> = found.iter().map(|machine| machine.name.clone()).collect();
    match (found.pop(), wanted) {
        (Some(machine), _) if found.is_empty() => machine.connect(),
        (Some(_), _) => Err(Failure::usage(format!("{} machines are running", names.len()))
            .details(names.join("\n"))
            .help(format!("name one: {command}"))),
        (None, Some(wanted)) => {
            let help = match (last_words(&folder, wanted), all.is_empty()) {
                (Some(words), _) => format!("it has ended: {words}"),
                (None, true) => "no machine is running".to_owned(),
                (None, false) => format!("running are: {}", all.join(", ")),
            };
            Err(Failure::failed(format!("no machine `{wanted}` is running")).help(help))
        }
        (None, None) => Err(Failure::failed("no machine is running").help(
            "start one in another terminal: turnstile run --statistics FILE.toml\n\
             or let this command start the machine: turnstile top FILE.toml",
        )),
    }
}

/// Removes a socket to which nobody listens any more: in containers processes have the same few numbers again and again,
/// so it may be in the way.
pub fn remove_abandoned(path: &Path) {
    if UnixStream::connect(path).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused) {
        let _ = fs::remove_file(path);
        crate::ports::abandon(path);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn what_nobody_listens_to_is_removed() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("gone-1.sock");
        drop(UnixListener::bind(&path).unwrap());
        assert!(running(folder.path()).is_empty());
        assert!(!path.exists());
    }
}
