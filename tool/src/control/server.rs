// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The socket of a machine that runs here: whoever connects is greeted, and what is asked is handed to the main loop.
//!
//! Each client has two threads. The main loop waits for neither: answers and events go into the client's outbox.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use super::find::remove_abandoned;
use super::names::full_name;
use super::outbox::Outbox;
use super::protocol::{Answer, Greeting, Kind, MAX_LINE, Refusal, Request, VERSION};
use super::socket;
use crate::failure::{Context, Result};

/// How many clients a machine has at most.
const MAX_CLIENTS: usize = 64;

/// A socket that is offered; dropping it takes it away.
pub struct Offer(PathBuf);

/// What a client asks of the main loop.
pub enum Asked {
    /// A reading of the statistics, as JSON.
    Reading(Sender<String>),
    /// Anything else.
    Request(Request, Caller),
}

/// The client that asked: where the answer goes. Dropping it lets the client ask for more.
pub struct Caller {
    outbox: Arc<Outbox>,
    _done: Sender<()>,
}

impl Caller {
    /// Answers the request.
    pub fn answer(self, answer: &Answer) {
        self.outbox.answer(text_of(answer));
    }

    /// Where events for the client go.
    pub fn outbox(&self) -> Arc<Outbox> {
        Arc::clone(&self.outbox)
    }
}

#[cfg(test)]
impl Caller {
    /// Makes one of which only its outbox is known.
    pub fn with(outbox: &Arc<Outbox>) -> Self {
        Caller { outbox: Arc::clone(outbox), _done: channel().0 }
    }
}

fn text_of(answer: &Answer) -> String {
    serde_json::to_string(answer).unwrap_or_default()
}

fn refusal(kind: Kind, what: impl Into<String>) -> String {
    text_of(&Answer::Error(Refusal { kind, what: what.into(), vms: Vec::new() }))
}

impl Offer {
    /// Offers control of the machine `name`. What is asked is handed to `sender`.
    pub fn open<E>(folder: &Path, name: &str, sender: Sender<E>, wrap: fn(Asked) -> E) -> Result<Offer>
    where
        E: Send + 'static,
    {
        let machine = full_name(name);
        let path = folder.join(format!("{machine}.sock"));
        let what = || format!("cannot offer control at {}", path.display());
        DirBuilder::new().recursive(true).mode(0o700).create(folder).context(what)?;
        // One that was there already may be open to others, or not be the user's own: then this fails.
        fs::set_permissions(folder, Permissions::from_mode(0o700)).context(what)?;
        remove_abandoned(&path);
        let listener = socket::listen(&path, what)?;
        let greeting = Greeting { control: VERSION, tool: env!("CARGO_PKG_VERSION").to_owned(), machine };
        let greeting = serde_json::to_string(&greeting).unwrap_or_default();
        std::thread::spawn(move || {
            let clients = Arc::new(());
            for mut stream in listener.incoming().map_while(std::result::Result::ok) {
                if Arc::strong_count(&clients) > MAX_CLIENTS {
                    let busy = refusal(Kind::Busy, format!("{MAX_CLIENTS} clients are there already"));
                    // It fits into the socket's buffer: nobody waits.
                    let _ = stream.write_all(format!("{greeting}\n{busy}\n").as_bytes());
                    continue;
                }
                let (client, sender, greeting) = (Arc::clone(&clients), sender.clone(), greeting.clone());
                std::thread::spawn(move || {
                    serve(stream, greeting, &sender, wrap);
                    drop(client);
                });
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

/// Serves a client until it leaves or the machine ends.
fn serve<E>(stream: UnixStream, greeting: String, sender: &Sender<E>, wrap: fn(Asked) -> E) {
    let Ok(mut lines) = stream.try_clone() else { return };
    let outbox = Arc::new(Outbox::default());
    outbox.answer(greeting);
    let waiting = Arc::clone(&outbox);
    let writer = std::thread::spawn(move || {
        while let Some(mut line) = waiting.next() {
            line.push('\n');
            if lines.write_all(line.as_bytes()).is_err() {
                break;
            }
        }
        waiting.close();
        // Whoever waits for a request of this client finds its end.
        let _ = lines.shutdown(std::net::Shutdown::Both);
    });
    let mut requests = BufReader::new(stream);
    while outbox.wait_for_room() && take_request(&mut requests, &outbox, sender, wrap) {}
    outbox.close();
    let _ = writer.join();
}

/// Takes a request, and waits until it is answered; false after the last one.
fn take_request<E>(
    requests: &mut impl BufRead,
    outbox: &Arc<Outbox>,
    sender: &Sender<E>,
    wrap: fn(Asked) -> E,
) -> bool {
    let mut line = Vec::new();
    match requests.by_ref().take(MAX_LINE).read_until(b'\n', &mut line) {
        Ok(0) | Err(_) => return false,
        Ok(_) if line.ends_with(b"\n") => {}
        Ok(_) => {
            outbox.answer(refusal(Kind::NotUnderstood, format!("a line ends before {MAX_LINE} bytes")));
            return false;
        }
    }
    match serde_json::from_slice(&line) {
        Err(error) => {
            outbox.answer(refusal(Kind::NotUnderstood, error.to_string()));
            true
        }
        Ok(Request::Statistics) => {
            let (answer, answered) = channel();
            let asked = sender.send(wrap(Asked::Reading(answer)));
            let Ok(Ok(reading)) = asked.map(|()| answered.recv()) else { return false };
            outbox.answer(format!("{{\"ok\":{reading}}}"));
            true
        }
        Ok(request) => {
            let (done, answered) = channel();
            let caller = Caller { outbox: Arc::clone(outbox), _done: done };
            let asked = sender.send(wrap(Asked::Request(request, caller)));
            // It fails when the caller's end of the channel is dropped, which is when the answer is in the outbox.
            let _ = answered.recv();
            asked.is_ok()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::sync::mpsc::Receiver;
    use std::time::Duration;

    use super::super::client::Client;
    use super::super::find::running;
    use super::*;
    use crate::top::collector::tests::example;

    const PATIENCE: Duration = Duration::from_secs(10);

    fn offer(folder: &Path) -> (Offer, Receiver<Asked>) {
        let (sender, asked) = channel();
        (Offer::open(folder, "m", sender, |asked| asked).unwrap(), asked)
    }

    fn connect(folder: &Path) -> Client {
        let name = full_name("m");
        Client::connect(&folder.join(format!("{name}.sock")), &name, PATIENCE).unwrap()
    }

    #[test]
    fn a_client_gets_readings_until_the_machine_ends() {
        let folder = tempfile::TempDir::new().unwrap();
        let (offer, asked) = offer(folder.path());
        let found = running(folder.path());
        assert_eq!((found.len(), &found[0].name), (1, &full_name("m")));
        let mut client = found[0].connect().unwrap();
        std::thread::spawn(move || {
            for _ in 0..2 {
                let Asked::Reading(answer) = asked.recv().unwrap() else { panic!("a reading is asked for") };
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
    fn what_an_ended_process_of_the_same_number_left_is_replaced() {
        let folder = tempfile::TempDir::new().unwrap();
        drop(UnixListener::bind(folder.path().join(format!("{}.sock", full_name("m")))).unwrap());
        let _offer = offer(folder.path());
        assert_eq!(running(folder.path()).len(), 1);
        let (sender, _asked) = channel();
        let another = Offer::open(folder.path(), "m", sender, |asked: Asked| asked);
        assert!(another.is_err(), "one that lives is not");
    }

    #[test]
    fn nobody_else_gets_at_the_sockets() {
        let folder = tempfile::TempDir::new().unwrap();
        let mode = || fs::metadata(folder.path()).unwrap().permissions().mode() & 0o777;
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let _offer = offer(folder.path());
        assert_eq!(mode(), 0o700);
    }

    #[test]
    fn lines_that_are_no_requests_are_refused() {
        let folder = tempfile::TempDir::new().unwrap();
        let (_offer, _asked) = offer(folder.path());
        let mut stream = UnixStream::connect(folder.path().join(format!("{}.sock", full_name("m")))).unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map(|line| line.unwrap());
        assert!(lines.next().unwrap().starts_with(&format!("{{\"control\":{VERSION},")));
        stream.write_all(b"statistics\n{\"request\":\"dance\"}\n").unwrap();
        for _ in 0..2 {
            let line = lines.next().unwrap();
            assert!(line.starts_with(r#"{"error":{"kind":"not-understood","#), "{line}");
        }
        stream.write_all(&vec![b' '; MAX_LINE as usize]).unwrap();
        assert!(lines.next().unwrap().contains("a line ends before 65536 bytes"));
        assert_eq!(lines.next(), None, "what follows is not looked at");
    }

    #[test]
    fn there_are_only_so_many_clients() {
        let folder = tempfile::TempDir::new().unwrap();
        let (_offer, asked) = offer(folder.path());
        std::thread::spawn(move || {
            for asked in asked {
                let Asked::Request(_, caller) = asked else { continue };
                caller.answer(&Answer::Ok(serde_json::Value::Null));
            }
        });
        let clients: Vec<Client> = (0..MAX_CLIENTS).map(|_| connect(folder.path())).collect();
        let one_more = connect(folder.path()).ask::<()>(&Request::List { memory: false });
        assert!(one_more.is_err_and(|failure| failure.what().contains("64 clients")));
        drop(clients);
        let begin = std::time::Instant::now();
        while connect(folder.path()).ask::<()>(&Request::List { memory: false }).is_err() {
            assert!(begin.elapsed() < PATIENCE, "those who have left still count");
        }
    }
}
