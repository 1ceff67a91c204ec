// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A program that is at a port: two threads, one for each direction.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;

use super::outbox::Outbox;
use super::says::Says;
use crate::session::PortOf;

/// How many bytes are read at once.
const PIECE: usize = 4096;
/// How often it is looked at whether a program is there that waits for its guest.
const TICK: Duration = Duration::from_millis(200);
/// Without waiting.
const NOW: &Timespec = &Timespec { tv_sec: 0, tv_nsec: 0 };

/// Serves a program at a port, by two threads, until it goes or is sent away. What it does is said to the main loop.
pub fn serve<E: Send + 'static>(
    stream: UnixStream,
    of: PortOf,
    id: u64,
    sender: Sender<E>,
    wrap: fn(Says) -> E,
) {
    let Ok(writer) = stream.try_clone() else { return };
    let outbox = Arc::new(Outbox::default());
    let (more, wanted) = channel();
    let come = Says::Come { of, id, outbox: Arc::clone(&outbox), more };
    if sender.send(wrap(come)).is_err() {
        return;
    }
    let reading = sender.clone();
    std::thread::spawn(move || read(stream, of, id, &reading, wrap, &wanted));
    std::thread::spawn(move || write(writer, of, id, &outbox, &sender, wrap));
}

/// Reads a piece, and another one when that is wanted.
fn read<E>(
    mut stream: UnixStream,
    of: PortOf,
    id: u64,
    sender: &Sender<E>,
    wrap: fn(Says) -> E,
    wanted: &Receiver<()>,
) {
    let mut buffer = [0; PIECE];
    loop {
        let count = stream.read(&mut buffer).unwrap_or(0);
        let Some(bytes) = buffer.get(..count).filter(|bytes| !bytes.is_empty()) else { break };
        let sent = sender.send(wrap(Says::Sends { of, id, bytes: bytes.to_vec() }));
        let gone = || drop(sender.send(wrap(Says::IsGone { of, id })));
        if sent.is_err() || !wait(wanted, &stream, gone) {
            return;
        }
    }
    let _ = sender.send(wrap(Says::Ends { of, id }));
    has_hung_up(&stream, None);
    let _ = sender.send(wrap(Says::IsGone { of, id }));
}

/// Waits until more is wanted; false if nothing will be. If the program goes meanwhile, that is said.
fn wait(wanted: &Receiver<()>, stream: &UnixStream, gone: impl Fn()) -> bool {
    let mut is_told = false;
    loop {
        match wanted.recv_timeout(TICK) {
            Ok(()) => return true,
            Err(RecvTimeoutError::Disconnected) => return false,
            Err(RecvTimeoutError::Timeout) if !is_told && has_hung_up(stream, Some(NOW)) => {
                is_told = true;
                gone();
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// Says whether the program has closed the connection, or waits for that.
fn has_hung_up(stream: &UnixStream, patience: Option<&Timespec>) -> bool {
    // That one comes without being asked for.
    let mut descriptors = [PollFd::new(stream, PollFlags::empty())];
    retry_on_intr(|| poll(&mut descriptors, patience)).is_ok_and(|count| count != 0)
}

/// Writes what comes. A program that is gone has read it, so that nobody waits for it.
fn write<E>(
    mut stream: UnixStream,
    of: PortOf,
    id: u64,
    outbox: &Outbox,
    sender: &Sender<E>,
    wrap: fn(Says) -> E,
) {
    while let Some(bytes) = outbox.next() {
        let _ = stream.write_all(&bytes);
        if sender.send(wrap(Says::Reads { of, id, bytes: bytes.len() })).is_err() {
            break;
        }
    }
    let _ = stream.shutdown(Shutdown::Both);
    outbox.end();
}

#[cfg(test)]
mod tests {
    use rustix::process::{Pid, Signal, kill_process};
    use signal_hook::consts::SIGWINCH;
    use signal_hook::iterator::Signals;

    use super::*;

    /// The number of the thread that asks.
    fn own_number() -> Pid {
        let path = std::fs::read_link("/proc/thread-self").unwrap();
        let number = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse().ok());
        number.and_then(Pid::from_raw).unwrap()
    }

    #[test]
    fn a_signal_does_not_look_like_an_end() {
        // With a handler, a signal interrupts who waits. One that names a thread comes to that.
        let _handled = Signals::new([SIGWINCH]).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (sender, number) = channel();
        let waiting = std::thread::spawn(move || {
            sender.send(own_number()).unwrap();
            has_hung_up(&ours, None)
        });
        let number = number.recv().unwrap();
        for _ in 0..20 {
            kill_process(number, Signal::WINCH).unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!waiting.is_finished(), "the program is there");
        drop(theirs);
        assert!(waiting.join().unwrap());
    }
}
