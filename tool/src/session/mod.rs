// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A running machine: the QEMU process, what is heard on its serial line, and what is said to it.

mod heard;
mod input;
mod line;
mod listener;
mod ports;

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use turnstile_link::{Command, Down, Message};

pub use heard::{Heard, describe_stop, start_failure};
use input::Inputs;
use line::Line;
pub use listener::Listener;
use ports::Ports;
pub use ports::{PortOf, WINDOW};

use crate::failure::{Context, Result};
use crate::qemu::Boot;
use crate::usage;

/// How many times more wall time than processor time a machine may take.
const WALL_FACTOR: u32 = 10;

/// News from a session.
#[derive(Debug)]
pub enum Notice {
    /// Something was heard on the serial line.
    Heard(Heard),
    /// The serial line has closed: QEMU ends.
    Ended {
        /// How many frames could not be read.
        lost: u32,
    },
}

/// A machine that runs.
pub struct Session {
    child: Child,
    line: Line,
    inputs: Inputs,
    ports: Ports,
    messages: std::thread::JoinHandle<String>,
    begin: Instant,
}

/// How QEMU ended.
#[derive(Debug)]
pub struct Ending {
    /// Its status.
    pub status: ExitStatus,
    /// What it wrote on its standard error.
    pub messages: String,
    /// The processor time that it used.
    pub used: Duration,
}

impl Session {
    /// Starts QEMU; what is heard goes to `sender`.
    pub fn start<E>(boot: &Boot, program: &Path, sender: Sender<E>) -> Result<Self>
    where
        E: From<Notice> + Send + 'static,
    {
        let mut child = boot.start(program)?;
        let framed = boot.append.contains("link=framed");
        let line = Line::new(child.stdin.take(), framed)?;
        let output = child.stdout.take();
        let errors = child.stderr.take();
        std::thread::spawn(move || {
            let mut listener = Listener::new(framed);
            let mut buffer = [0; 4096];
            let mut output = output;
            while let Some(count) = output.as_mut().and_then(|output| output.read(&mut buffer).ok()) {
                let Some(bytes) = buffer.get(..count).filter(|bytes| !bytes.is_empty()) else { break };
                for heard in listener.hear(bytes) {
                    if sender.send(Notice::Heard(heard).into()).is_err() {
                        return;
                    }
                }
            }
            for heard in listener.finish() {
                let _ = sender.send(Notice::Heard(heard).into());
            }
            let _ = sender.send(Notice::Ended { lost: listener.lost() }.into());
        });
        let messages = std::thread::spawn(move || {
            let mut text = String::new();
            if let Some(errors) = errors {
                for line in BufReader::new(errors).lines().map_while(std::result::Result::ok) {
                    text.push_str(&line);
                    text.push('\n');
                }
            }
            text
        });
        Ok(Session {
            child,
            line,
            inputs: Inputs::default(),
            ports: Ports::default(),
            messages,
            begin: Instant::now(),
        })
    }

    /// Takes note of what was heard, which may let more input go; returns what is to be said of it besides.
    pub fn hear(&mut self, heard: &Heard) -> Option<Heard> {
        self.line.open();
        let dropped = self.inputs.hear(heard);
        self.flow();
        let vm = heard.vm().filter(|_| dropped > 0)?;
        Some(Heard::InputDropped { vm, bytes: dropped })
    }

    /// Sends what can be sent by now; returns what is to be said of input that cannot. To be called now and then.
    pub fn pump(&mut self) -> Vec<Heard> {
        self.flow();
        let now = Instant::now();
        let raw = self.line.stalled(now).map(|bytes| (0, bytes));
        let stalled = raw.into_iter().chain(self.inputs.stalled(now));
        stalled.map(|(vm, bytes)| Heard::InputWaits { vm, bytes }).collect()
    }

    /// How many bytes of input wait on this side.
    pub fn queued(&self) -> usize {
        self.inputs.queued() + self.line.queued()
    }

    /// Sends bytes as they are: for a line without frames.
    pub fn send_raw(&mut self, bytes: &[u8]) {
        self.line.send(bytes);
    }

    /// Types into a VM's console. What its guest has not read yet holds back what follows.
    pub fn type_into(&mut self, vm: u8, bytes: &[u8]) {
        self.inputs.push(vm, bytes);
        self.flow();
    }

    fn flow(&mut self) {
        while let Some((vm, bytes)) = self.inputs.next() {
            self.send(&Down::Input { vm, bytes: &bytes });
        }
        while let Some((of, say)) = self.ports.next() {
            self.send(&say.message(of));
        }
        self.line.pump();
    }

    /// Takes what was heard of ports, and of VMs that start and stop. Returns the ports that a VM which has stopped has closed.
    pub fn hear_of_ports(&mut self, heard: &Heard) -> Vec<PortOf> {
        let closed = self.ports.hear(heard);
        self.flow();
        closed
    }

    /// Somebody comes to a port at which nobody is, and has room for [`WINDOW`] bytes.
    pub fn connect_port(&mut self, of: PortOf) {
        self.ports.connect(of);
        self.flow();
    }

    /// They go. What the guest has not taken is gone, too.
    pub fn disconnect_port(&mut self, of: PortOf) {
        self.ports.disconnect(of);
        self.flow();
    }

    /// Takes what they send. What the guest has not taken holds back what follows.
    pub fn send_to_port(&mut self, of: PortOf, bytes: &[u8]) {
        self.ports.push(of, bytes);
        self.flow();
    }

    /// They have read so many bytes of the guest.
    pub fn read_port(&mut self, of: PortOf, bytes: usize) {
        self.ports.read(of, bytes);
        self.flow();
    }

    /// Returns how many bytes the guest has not taken of what they have sent.
    pub fn port_backlog(&self, of: PortOf) -> usize {
        self.ports.backlog(of)
    }

    /// Says whether what was just heard of a port is for whoever is there now.
    pub fn is_for_port(&self, of: PortOf) -> bool {
        self.ports.is_for_them(of)
    }

    /// The terminal of a VM's console has another size.
    pub fn resize(&mut self, vm: u8, columns: u16, rows: u16) {
        self.send(&Down::Size { vm, columns, rows });
    }

    /// Tells the hypervisor what to do.
    pub fn command(&mut self, command: Command) {
        self.send(&Down::Command(command));
    }

    fn send(&mut self, message: &impl Message) {
        let mut frame = Vec::new();
        // Chunks of MAX_BYTES and commands always fit.
        let _ = turnstile_link::send(message, |bytes| frame.extend_from_slice(bytes));
        self.send_raw(&frame);
    }

    /// Says whether the machine has run for too long: QEMU used more processor time than `limit`, which does not
    /// grow while this computer runs something else; or, for a machine that sleeps, ten times that has passed.
    pub fn exceeds(&self, limit: Duration) -> bool {
        self.exceeds_with(limit, self.cpu_time())
    }

    /// The same as [`Session::exceeds`], for whoever has just read the processor time.
    pub fn exceeds_with(&self, limit: Duration, used: Duration) -> bool {
        used > limit || self.begin.elapsed() > limit * WALL_FACTOR
    }

    /// How long ago QEMU was started.
    pub fn age(&self) -> Duration {
        self.begin.elapsed()
    }

    /// The processor time that QEMU has used.
    pub fn cpu_time(&self) -> Duration {
        usage::own(self.child.id()).unwrap_or_default()
    }

    /// Ends QEMU at once.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
    }

    /// Waits for QEMU's end.
    pub fn wait(mut self) -> Result<Ending> {
        let (status, used) = usage::wait(&mut self.child).context(|| "cannot wait for QEMU".to_owned())?;
        let messages = self.messages.join().unwrap_or_default();
        Ok(Ending { status, messages, used })
    }
}
