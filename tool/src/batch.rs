// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs a machine to its end without a user, and keeps what it said.

use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use crate::failure::{Failure, Result};
use crate::qemu::Boot;
use crate::session::{Heard, Notice, Session};
use crate::setup::last_lines;

/// How often the time-out is looked at.
const TICK: Duration = Duration::from_millis(100);

/// What a machine said, and how it ended.
#[derive(Debug, Default)]
pub struct Transcript {
    /// The hypervisor's own text.
    pub text: String,
    /// The console of each VM, by its index.
    pub consoles: Vec<String>,
    /// How many VMs crashed, if the hypervisor said that all have stopped.
    pub done: Option<u8>,
    /// A fault that the hypervisor found in itself.
    pub fault: Option<String>,
    /// What QEMU wrote on its standard error.
    pub messages: String,
    /// The processor time that QEMU used.
    pub used: Duration,
}

impl Transcript {
    fn add(&mut self, heard: &Heard) {
        match heard {
            Heard::Text { text } => self.text.push_str(&String::from_utf8_lossy(text)),
            Heard::Console { vm, text } => {
                let index = usize::from(*vm);
                if self.consoles.len() <= index {
                    self.consoles.resize(index + 1, String::new());
                }
                if let Some(console) = self.consoles.get_mut(index) {
                    console.push_str(&String::from_utf8_lossy(text));
                }
            }
            Heard::Done { crashed } => self.done = Some(*crashed),
            Heard::Fault { text } => self.fault = Some(text.clone()),
            _ => {}
        }
    }

    /// Everything that was said, for a failure's details.
    pub fn all(&self) -> String {
        let consoles = self.consoles.join("\n");
        last_lines(&format!("{}\n{consoles}\n{}", self.text, self.messages), 25)
    }

    /// The lines of the first VM's console.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.consoles.first().map_or("", String::as_str).lines().map(str::trim_end)
    }
}

/// Runs a machine until it ends by itself; a machine that does not is a failure.
///
/// `limit` is the processor time that QEMU may use: on a busy machine it grows as slowly as QEMU does. `watch`
/// sees everything as it is heard.
pub fn run(
    boot: &Boot,
    program: &Path,
    limit: Duration,
    mut watch: impl FnMut(&Heard),
) -> Result<Transcript> {
    let (sender, notices) = channel::<Notice>();
    let mut session = Session::start(boot, program, sender)?;
    let mut transcript = Transcript::default();
    let too_long = loop {
        match notices.recv_timeout(TICK) {
            Ok(Notice::Heard(heard)) => {
                watch(&heard);
                transcript.add(&heard);
            }
            Ok(Notice::Ended { .. }) | Err(RecvTimeoutError::Disconnected) => break false,
            Err(RecvTimeoutError::Timeout) => {}
        }
        if session.exceeds(limit) {
            break true;
        }
    };
    if too_long {
        session.kill();
    }
    let ending = session.wait()?;
    (transcript.messages, transcript.used) = (ending.messages, ending.used);
    if let Some(fault) = &transcript.fault {
        let what = format!("the hypervisor reported a fault of its own: {fault}");
        return Err(Failure::failed(what).details(transcript.all()));
    }
    if too_long {
        let what = format!("the machine did not end within {} s of processor time", limit.as_secs());
        return Err(Failure::failed(what).details(transcript.all()));
    }
    if !ending.status.success() {
        return Err(Failure::failed(format!("QEMU ended with {}", ending.status)).details(transcript.all()));
    }
    Ok(transcript)
}
