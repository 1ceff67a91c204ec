// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The way into a running session: `run` owns the serial line, and offers a Unix socket to who wants to read.
//!
//! A line `statistics` asks for a reading, which comes back as one line of JSON. A session that ends closes the
//! connection. The sockets lie in a folder of the user's own, one for each session: `NAME-PROCESS.sock`.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use super::collector::Collector;
use super::reading::Reading;
use crate::failure::{Context, Failure, Result};
use crate::layout::Layout;
use crate::session::Heard;

/// What a client asks.
const QUESTION: &str = "statistics";
/// The longest line that a client may send.
const MAX_QUESTION: u64 = 64;
/// How long a machine may take to answer: one that does not serve its line would never.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where sessions offer their sockets.
pub fn folder(layout: &Layout) -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|folder| folder.is_dir()) {
        Some(folder) => folder.join("turnstile"),
        None => layout.target().join("sessions"),
    }
}

/// A socket that is offered; dropping it takes it away.
pub struct Offer(PathBuf);

impl Offer {
    /// Offers the statistics of the session `name`. Who asks is handed to `sender`, as where the answer goes.
    pub fn open<E>(
        folder: &Path,
        name: &str,
        sender: Sender<E>,
        ask: fn(Sender<String>) -> E,
    ) -> Result<Offer>
    where
        E: Send + 'static,
    {
        let path = folder.join(format!("{name}-{}.sock", std::process::id()));
        let what = || format!("cannot offer the statistics at {}", path.display());
        DirBuilder::new().recursive(true).mode(0o700).create(folder).context(what)?;
        // One that was there already may be open to others, or not be the user's own: then this fails.
        fs::set_permissions(folder, Permissions::from_mode(0o700)).context(what)?;
        remove_abandoned(&path);
        let listener = UnixListener::bind(&path).context(what)?;
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(std::result::Result::ok) {
                let sender = sender.clone();
                std::thread::spawn(move || serve(stream, &sender, ask));
            }
        });
        Ok(Offer(path))
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Answers one client until it leaves, says what is not understood, or the session ends.
fn serve<E>(stream: UnixStream, sender: &Sender<E>, ask: fn(Sender<String>) -> E) {
    let Ok(mut answers) = stream.try_clone() else { return };
    let mut questions = BufReader::new(stream);
    loop {
        let mut line = String::new();
        let read = questions.by_ref().take(MAX_QUESTION).read_line(&mut line);
        if read.is_err() || line.trim_end() != QUESTION {
            return;
        }
        let (answer, answered) = channel();
        if sender.send(ask(answer)).is_err() {
            return;
        }
        let Ok(answer) = answered.recv() else { return };
        if answers.write_all(answer.as_bytes()).and_then(|()| answers.write_all(b"\n")).is_err() {
            return;
        }
    }
}

/// Those who wait for a reading, in a session.
pub struct Desk {
    collector: Collector,
    waiting: Vec<Sender<String>>,
}

impl Desk {
    /// Makes a desk for VMs of these names.
    pub fn new(names: Vec<String>) -> Self {
        Desk { collector: Collector::new(names), waiting: Vec::new() }
    }

    /// Takes somebody who asks; returns what the hypervisor has to be told.
    pub fn ask(&mut self, answer: Sender<String>) -> Vec<turnstile_link::Command> {
        self.waiting.push(answer);
        self.collector.begin()
    }

    /// Takes what was heard, and answers all who wait if that completes a reading.
    pub fn hear(&mut self, heard: &Heard) {
        let Some(reading) = self.collector.hear(heard) else { return };
        let text = serde_json::to_string(&reading).unwrap_or_default();
        for answer in self.waiting.drain(..) {
            // Somebody who has left wants none.
            let _ = answer.send(text.clone());
        }
    }
}

/// A connection to a running session.
pub struct Client {
    stream: UnixStream,
    answers: BufReader<UnixStream>,
}

impl Client {
    fn connect(path: &Path) -> std::io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let answers = BufReader::new(stream.try_clone()?);
        Ok(Client { stream, answers })
    }

    /// Reads the statistics; `None` if the session has ended.
    pub fn read(&mut self) -> Result<Option<Reading>> {
        let mut line = String::new();
        let asked = self.stream.write_all(format!("{QUESTION}\n").as_bytes());
        match asked.and_then(|()| self.answers.read_line(&mut line)) {
            Ok(0) => Ok(None),
            Ok(_) => {
                let reading = serde_json::from_str(&line);
                reading.map(Some).context(|| "this version does not understand the session's answer".into())
            }
            Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {
                Ok(None)
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                let what = format!("the machine has not answered for {} s", PATIENCE.as_secs());
                Err(Failure::failed(what).help("a guest cannot cause this; see what `turnstile run` says"))
            }
            Err(error) => Err(Failure::failed(format!("cannot read from the session: {error}"))),
        }
    }
}

/// Connects to the running session, or to the one whose name or process `wanted` names.
pub fn attach(layout: &Layout, wanted: Option<&str>) -> Result<(String, Client)> {
    let mut found = running(&folder(layout));
    found.retain(|(name, _)| wanted.is_none_or(|wanted| is_wanted(name, wanted)));
    let names: Vec<String> = found.iter().map(|(name, _)| name.clone()).collect();
    match (found.pop(), wanted) {
        (Some(session), _) if found.is_empty() => Ok(session),
        (Some(_), _) => Err(Failure::usage(format!("{} sessions are running", names.len()))
            .details(names.join("\n"))
            .help("name one: turnstile top --session NAME")),
        (None, Some(wanted)) => Err(Failure::failed(format!("no session `{wanted}` is running"))
            .help("`turnstile top` without --session finds the running one")),
        (None, None) => Err(Failure::failed("no session is running").help(
            "start one in another terminal: turnstile run --statistics FILE.toml\n\
             or let this command start the machine: turnstile top FILE.toml",
        )),
    }
}

fn is_wanted(session: &str, wanted: &str) -> bool {
    let parts = session.rsplit_once('-');
    session == wanted || parts.is_some_and(|(name, process)| name == wanted || process == wanted)
}

/// Connects to all sessions; the sockets of those that have ended without taking them away are removed.
fn running(folder: &Path) -> Vec<(String, Client)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut sessions: Vec<(String, Client)> = entries
        .filter_map(|entry| {
            let path = entry.path();
            let name = entry.file_name().to_str()?.strip_suffix(".sock")?.to_owned();
            remove_abandoned(&path);
            Some((name, Client::connect(&path).ok()?))
        })
        .collect();
    sessions.sort_by(|(a, _), (b, _)| a.cmp(b));
    sessions
}

/// Removes a socket to which nobody listens any more: in containers processes have the same few numbers again and again,
/// so it may be in the way.
fn remove_abandoned(path: &Path) {
    if UnixStream::connect(path).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused) {
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::super::collector::tests::example;
    use super::*;

    #[test]
    fn a_client_gets_readings_until_the_session_ends() {
        let folder = tempfile::TempDir::new().unwrap();
        let (sender, asked) = channel();
        let offer = Offer::open(folder.path(), "m", sender, |answer| answer).unwrap();
        let mut found = running(folder.path());
        assert_eq!(found.len(), 1);
        let (name, mut client) = found.pop().unwrap();
        assert_eq!(name, format!("m-{}", std::process::id()));
        std::thread::spawn(move || {
            for _ in 0..2 {
                let answer: Sender<String> = asked.recv().unwrap();
                answer.send(serde_json::to_string(&example()).unwrap()).unwrap();
            }
        });
        assert_eq!(client.read().unwrap(), Some(example()));
        assert_eq!(client.read().unwrap(), Some(example()));
        assert!(client.read().unwrap().is_none());
        drop(offer);
        assert!(running(folder.path()).is_empty());
    }

    #[test]
    fn what_nobody_listens_to_is_removed() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("gone-1.sock");
        drop(UnixListener::bind(&path).unwrap());
        assert!(running(folder.path()).is_empty());
        assert!(!path.exists());
    }

    #[test]
    fn what_an_ended_process_of_the_same_number_left_is_replaced() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join(format!("m-{}.sock", std::process::id()));
        drop(UnixListener::bind(&path).unwrap());
        let (sender, _asked) = channel::<Sender<String>>();
        let _offer = Offer::open(folder.path(), "m", sender.clone(), |answer| answer).unwrap();
        assert_eq!(running(folder.path()).len(), 1);
        assert!(Offer::open(folder.path(), "m", sender, |answer| answer).is_err(), "one that lives is not");
    }

    #[test]
    fn nobody_else_gets_at_the_sockets() {
        let folder = tempfile::TempDir::new().unwrap();
        let mode = || fs::metadata(folder.path()).unwrap().permissions().mode() & 0o777;
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let (sender, _asked) = channel::<Sender<String>>();
        let _offer = Offer::open(folder.path(), "m", sender, |answer| answer).unwrap();
        assert_eq!(mode(), 0o700);
    }

    #[test]
    fn sessions_are_named_in_three_ways() {
        for wanted in ["two-linux-77", "two-linux", "77"] {
            assert!(is_wanted("two-linux-77", wanted));
        }
        assert!(!is_wanted("two-linux-77", "two"));
    }
}
