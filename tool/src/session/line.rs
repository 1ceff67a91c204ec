// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The pipe to QEMU's standard input, which nobody waits for: what it does not take is kept.

use std::collections::VecDeque;
use std::io::{ErrorKind, Write};
use std::process::ChildStdin;
use std::time::Instant;

use super::input::Pause;
use crate::failure::{Context, Result};

/// The pipe, and what it has not taken.
#[derive(Debug)]
pub struct Line {
    pipe: Option<ChildStdin>,
    queue: VecDeque<u8>,
    pause: Pause,
}

impl Line {
    /// Uses a pipe from now on.
    pub fn new(pipe: Option<ChildStdin>) -> Result<Self> {
        if let Some(pipe) = &pipe {
            rustix::io::ioctl_fionbio(pipe, true).context(|| "cannot set up the pipe to QEMU".into())?;
        }
        Ok(Line { pipe, queue: VecDeque::new(), pause: Pause::default() })
    }

    /// Sends bytes, after those that wait.
    pub fn send(&mut self, bytes: &[u8]) {
        self.queue.extend(bytes);
        self.pump();
    }

    /// Writes what the pipe takes.
    pub fn pump(&mut self) {
        let Some(pipe) = &mut self.pipe else { return self.queue.clear() };
        while !self.queue.is_empty() {
            match pipe.write(self.queue.as_slices().0) {
                Ok(count) => {
                    self.queue.drain(..count);
                    self.pause.end();
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // A QEMU that ended reads nothing; its ending is noticed on the other pipe.
                Err(_) => self.queue.clear(),
            }
        }
    }

    /// How many bytes the pipe has not taken.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Returns how many bytes wait, with those in the pipe, once that has lasted for a while.
    pub fn stalled(&mut self, now: Instant) -> Option<usize> {
        if self.queue.is_empty() {
            return None;
        }
        let within = self.pipe.as_ref().and_then(|pipe| rustix::io::ioctl_fionread(pipe).ok()).unwrap_or(0);
        self.pause.is_due(now).then(|| self.queue.len() + within as usize)
    }
}
