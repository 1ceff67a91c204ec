// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs at sockets, with a guest that writes back what it reads.

use std::collections::VecDeque;
use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use super::desk::Line;
use super::*;
use crate::session::{Heard, PortOf};

const PATIENCE: Duration = Duration::from_secs(20);

/// A guest that writes back what it reads, while it reads.
#[derive(Default)]
struct Echo {
    waiting: VecDeque<u8>,
    reads: bool,
    connects: usize,
}

impl Line for Echo {
    fn connect(&mut self, _: PortOf) {
        self.connects += 1;
    }

    fn disconnect(&mut self, _: PortOf) {
        self.waiting.clear();
    }

    fn send(&mut self, _: PortOf, bytes: &[u8]) {
        self.waiting.extend(bytes);
    }

    fn read(&mut self, _: PortOf, _: usize) {}

    fn backlog(&self, _: PortOf) -> usize {
        self.waiting.len()
    }

    fn is_for_them(&self, _: PortOf) -> bool {
        true
    }
}

/// A machine with one port.
struct Machine {
    offer: Offer,
    asked: Receiver<Says>,
    desk: Desk,
    echo: Echo,
}

impl Machine {
    fn start(folder: &Path) -> Self {
        let (sender, asked) = channel();
        let named = [Named { vm: "one".into(), ports: vec!["agent".into()] }];
        let offer = Offer::open(folder, "m", &named, &sender, |says| says).unwrap();
        Self { offer, asked, desk: Desk::default(), echo: Echo { reads: true, ..Echo::default() } }
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.offer.places[0].3).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Goes on until something is so.
    fn until(&mut self, is_so: impl Fn(&Self) -> bool) {
        let begin = Instant::now();
        while !is_so(self) {
            assert!(begin.elapsed() < PATIENCE);
            if let Ok(says) = self.asked.recv_timeout(Duration::from_millis(10)) {
                self.desk.take(says, &mut self.echo);
            }
            let bytes: Vec<u8> = if self.echo.reads { self.echo.waiting.drain(..).collect() } else { vec![] };
            self.desk.hear(&Heard::Port { vm: 0, port: 1, bytes }, &[], &mut self.echo);
        }
    }
}

#[test]
fn bytes_go_to_the_guest_and_back_and_the_connection_ends_when_it_has_taken_all() {
    let folder = tempfile::TempDir::new().unwrap();
    let mut machine = Machine::start(folder.path());
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let place = machine.offer.places[0].3.clone();
    assert_eq!((mode(place.parent().unwrap()), place.file_name().unwrap()), (0o700, "one.agent".as_ref()));
    let sent: Vec<u8> = (0..300_000u32).map(|at| (at.wrapping_mul(at) >> 7) as u8).collect();
    let mut stream = machine.connect();
    let mut writer = stream.try_clone().unwrap();
    let bytes = sent.clone();
    let client = std::thread::spawn(move || {
        let reader = std::thread::spawn(move || {
            let mut read = Vec::new();
            stream.read_to_end(&mut read).unwrap();
            read
        });
        writer.write_all(&bytes).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
        reader.join().unwrap()
    });
    machine.until(|_| client.is_finished());
    assert!(client.join().unwrap() == sent);
    drop(machine);
    assert!(!place.parent().unwrap().exists(), "it is taken away");
}

#[test]
fn another_program_is_turned_away_until_the_first_is_gone() {
    let folder = tempfile::TempDir::new().unwrap();
    let mut machine = Machine::start(folder.path());
    machine.echo.reads = false;
    let mut first = machine.connect();
    machine.until(|machine| machine.desk.is_taken((0, 1)));
    let mut second = machine.connect();
    let turned_away = std::thread::spawn(move || second.read(&mut [0; 1]).unwrap());
    machine.until(|_| turned_away.is_finished());
    assert_eq!(turned_away.join().unwrap(), 0);
    // More than is kept for the guest, so that nobody reads whether the first is there.
    first.set_nonblocking(true).unwrap();
    let mut sent = 0;
    while let Ok(count) = first.write(&[7; 4096]) {
        sent += count;
        machine.until(|_| true);
    }
    machine.until(|machine| machine.echo.waiting.len() >= 64 * 1024);
    assert!(sent > 64 * 1024 && machine.desk.is_taken((0, 1)));
    drop(first);
    machine.until(|machine| !machine.desk.is_taken((0, 1)));
    let _third = machine.connect();
    machine.until(|machine| machine.echo.connects == 2);
    assert!(machine.echo.waiting.is_empty(), "what the first has sent waits no longer");
}

#[test]
fn what_an_ended_machine_has_left_is_removed() {
    let folder = tempfile::TempDir::new().unwrap();
    let left = folder.path().join("m-1.ports");
    fs::create_dir(&left).unwrap();
    fs::write(left.join("one.agent"), "").unwrap();
    abandon(&folder.path().join("m-1.sock"));
    assert!(!left.exists());
}
