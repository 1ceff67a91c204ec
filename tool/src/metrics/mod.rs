// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `turnstile run --metrics ADDRESS`: what a running machine counts, as OpenMetrics over HTTP.
//!
//! | file | what |
//! |---|---|
//! | `http` | one request and its answer |
//! | `states` | what the machine has said of its VMs: they run, have started, have stopped |
//! | `text` | from a reading and these states to the text of OpenMetrics |
//!
//! A reading of the statistics goes over the machine's serial line. So there is at most one in [`FRESH`]: who asks sooner gets the
//! one before. Whoever asks, and however slowly they read, only threads of this module wait.

mod http;
mod states;
mod text;

use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::failure::{Failure, Result};
use crate::session::Heard;
use http::{Request, Response};
use states::States;

/// How long a reading is good for.
pub const FRESH: Duration = Duration::from_secs(1);
/// How long the machine may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How many clients there are at most: those that come then are turned away.
const MAX_CLIENTS: usize = 256;
/// The form of the answer.
const CONTENT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The metrics of a machine, which anybody may ask for at an address.
pub struct Metrics {
    states: Arc<Mutex<States>>,
    address: SocketAddr,
}

/// What a thread needs to answer.
struct Desk<E> {
    states: Arc<Mutex<States>>,
    sender: Sender<E>,
    ask: fn(Sender<String>) -> E,
    /// The last answer, and when it was made. Held while a reading is made, so that all who ask meanwhile get that one.
    last: Mutex<Option<(Instant, String)>>,
}

impl Metrics {
    /// Answers at `address` for VMs of these names. Who wants a reading is handed to `sender`, as where its JSON goes.
    ///
    /// # Errors
    /// If nothing can be offered at this address.
    pub fn open<E: Send + 'static>(
        address: SocketAddr,
        names: Vec<String>,
        sender: Sender<E>,
        ask: fn(Sender<String>) -> E,
    ) -> Result<Self> {
        let failed = |error| {
            Failure::failed(format!("cannot offer metrics at {address}: {error}"))
                .help("another program may use this port; port 0 takes a free one and says which")
        };
        let listener = TcpListener::bind(address).map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        let states = Arc::new(Mutex::new(States::new(names)));
        let desk = Arc::new(Desk { states: states.clone(), sender, ask, last: Mutex::new(None) });
        std::thread::spawn(move || {
            let clients = Arc::new(());
            for stream in listener.incoming().flatten() {
                if Arc::strong_count(&clients) > MAX_CLIENTS {
                    continue;
                }
                let (client, desk) = (Arc::clone(&clients), Arc::clone(&desk));
                std::thread::spawn(move || {
                    // Somebody who has left wants no answer.
                    let _ = http::serve(stream, |request| desk.answer(request));
                    drop(client);
                });
            }
        });
        Ok(Metrics { states, address: bound })
    }

    /// Where the metrics are.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes what was heard.
    pub fn hear(&self, heard: &Heard) {
        self.states.lock().unwrap_or_else(PoisonError::into_inner).hear(heard);
    }
}

impl<E> Desk<E> {
    fn answer(&self, Request { method, path }: &Request) -> Response {
        match (method.as_str(), path.as_str()) {
            ("GET" | "HEAD", "/metrics") => self.metrics(),
            ("GET" | "HEAD", "/") => plain("200 OK", "the metrics are at /metrics\n"),
            ("GET" | "HEAD", _) => plain("404 Not Found", "there are only /metrics\n"),
            _ => plain("405 Method Not Allowed", "metrics can be read, and nothing else\n"),
        }
    }

    fn metrics(&self) -> Response {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.as_ref().is_none_or(|(made, _)| made.elapsed() >= FRESH) {
            match self.read() {
                Some(text) => *last = Some((Instant::now(), text)),
                None => return plain("503 Service Unavailable", "the machine does not answer\n"),
            }
        }
        let text = last.as_ref().map(|(_, text)| text.clone()).unwrap_or_default();
        Response { status: "200 OK", content: CONTENT, text }
    }

    fn read(&self) -> Option<String> {
        let (answer, answered) = channel();
        self.sender.send((self.ask)(answer)).ok()?;
        let reading = serde_json::from_str(&answered.recv_timeout(PATIENCE).ok()?).ok()?;
        let states = self.states.lock().unwrap_or_else(PoisonError::into_inner).clone();
        text::encode(reading, states)
    }
}

fn plain(status: &'static str, text: &str) -> Response {
    Response { status, content: "text/plain; charset=utf-8", text: text.to_owned() }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::sync::mpsc::Receiver;

    use super::*;
    use crate::top::collector::tests::example;

    fn get(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "{request} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn open() -> (Metrics, Receiver<Sender<String>>) {
        let (sender, asked) = channel();
        let address = "127.0.0.1:0".parse().unwrap();
        (
            Metrics::open(address, vec!["linux".into(), "quiet".into()], sender, |answer| answer).unwrap(),
            asked,
        )
    }

    #[test]
    fn two_who_ask_within_a_second_cost_the_machine_one_reading() {
        let (metrics, asked) = open();
        let machine = std::thread::spawn(move || {
            let answer = asked.recv().unwrap();
            answer.send(serde_json::to_string(&example()).unwrap()).unwrap();
            asked
        });
        let first = get(metrics.address(), "GET /metrics");
        let asked = machine.join().unwrap();
        assert!(first.starts_with("HTTP/1.1 200 OK\r\n") && first.contains(CONTENT), "{first}");
        assert!(first.trim_end().ends_with("# EOF"), "{first}");
        assert!(get(metrics.address(), "GET /metrics?x=1").contains("turnstile_vm_running"));
        assert!(asked.try_recv().is_err(), "nothing more was asked");
    }

    #[test]
    fn who_does_not_read_keeps_nobody_waiting() {
        let (metrics, asked) = open();
        let stalled: Vec<TcpStream> =
            (0..64).map(|_| TcpStream::connect(metrics.address()).unwrap()).collect();
        std::thread::spawn(move || {
            asked.iter().for_each(|answer| {
                let _ = answer.send(serde_json::to_string(&example()).unwrap());
            });
        });
        assert!(get(metrics.address(), "GET /metrics").contains("# EOF"));
        drop(stalled);
    }

    #[test]
    fn what_is_not_there_is_said() {
        let (metrics, asked) = open();
        assert!(get(metrics.address(), "GET /").contains("/metrics"));
        assert!(get(metrics.address(), "GET /x").starts_with("HTTP/1.1 404"));
        assert!(get(metrics.address(), "POST /metrics").starts_with("HTTP/1.1 405"));
        drop(asked);
        assert!(get(metrics.address(), "GET /metrics").starts_with("HTTP/1.1 503"));
        let (sender, _asked) = channel::<Sender<String>>();
        let taken = Metrics::open(metrics.address(), Vec::new(), sender, |answer| answer);
        assert!(taken.err().unwrap().full().contains("cannot offer metrics at 127.0.0.1:"));
    }
}
