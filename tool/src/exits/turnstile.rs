// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Turnstile under the load: the statistics of its VM.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use super::{Counts, GUEST, Load};
use crate::bench::report::printable;
use crate::failure::{Failure, Result};
use crate::isa::Isa;
use crate::layout::Layout;
use crate::machine;
use crate::session::{Heard, Notice, Session};
use crate::setup::qemu::Qemu;
use crate::setup::{images, last_lines};
use crate::top::reading::{Collector, VmReading};

/// Processor time of a run.
const LIMIT: Duration = Duration::from_secs(120);
const TICK: Duration = Duration::from_millis(50);
/// What the guest says last; it then waits to be switched off.
const DONE: &str = "@done load";

/// Runs the load and returns the version with what was counted.
pub fn count(layout: &Layout, qemu: &Qemu, vcpus: u16, options: &str) -> Result<(String, Counts)> {
    images::guests(layout, Isa::X86_64)?;
    let (console, with) = run(layout, qemu, vcpus, options)?;
    let load = load_of(&console)?;
    // The same without a load: what starting and reporting cost, and what comes until the sources fall silent.
    let (console, without) = run(layout, qemu, vcpus, &format!("milliseconds=0 {options}"))?;
    let load = load.without(load_of(&console)?);
    Ok((format!("Turnstile {}", env!("CARGO_PKG_VERSION")), Counts::of_turnstile(load, &with, &without)))
}

/// Returns what the guest says of its load.
fn load_of(console: &str) -> Result<Load> {
    let failure = |what: String| Failure::failed(what).details(last_lines(&printable(console), 25));
    if let Some(error) = console.lines().find_map(|line| line.trim().strip_prefix("@error ")) {
        return Err(failure(format!("the guest reports: {}", printable(error))));
    }
    console.lines().find_map(Load::parse).ok_or_else(|| failure("the guest did not report".to_owned()))
}

/// The machine with the load.
fn config(vcpus: u16, options: &str) -> String {
    format!(
        "[machine]\nboard = \"q35\"\n\n[[vm]]\nname = \"{GUEST}\"\nkernel = \"guest:{GUEST}\"\n\
         cmdline = \"stay {options}\"\nmemory = \"32MiB\"\nvcpus = {vcpus}\nstatistics = true\n"
    )
}

/// Runs the guest to its last word and reads the statistics.
fn run(layout: &Layout, qemu: &Qemu, vcpus: u16, options: &str) -> Result<(String, VmReading)> {
    let (mut boot, _) = machine::prepare_text(layout, "exits", &config(vcpus, options))?;
    boot.counted = true;
    let (sender, notices) = channel::<Notice>();
    let mut session = Session::start(&boot, &qemu.path, sender)?;
    let mut run = Run { console: String::new(), text: String::new(), asked: false };
    let result = run.follow(&mut session, &notices);
    session.kill();
    session.wait()?;
    let reading = result.map_err(|what| {
        Failure::failed(what).details(last_lines(&printable(&format!("{}\n{}", run.text, run.console)), 25))
    })?;
    Ok((run.console, reading))
}

/// A run under way.
struct Run {
    console: String,
    text: String,
    asked: bool,
}

impl Run {
    fn follow(
        &mut self,
        session: &mut Session,
        notices: &Receiver<Notice>,
    ) -> std::result::Result<VmReading, String> {
        let mut collector = Collector::new(vec![GUEST.to_owned()]);
        loop {
            match notices.recv_timeout(TICK) {
                Ok(Notice::Heard(heard)) => {
                    if let Some(reading) = collector.hear(&heard) {
                        return reading.vms.into_iter().next().ok_or_else(|| "there is no VM".to_owned());
                    }
                    self.note(&heard)?;
                }
                Ok(Notice::Ended { .. }) | Err(RecvTimeoutError::Disconnected) => {
                    return Err("the machine ended before its statistics were read".to_owned());
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            if !self.asked && self.console.contains(DONE) {
                self.asked = true;
                collector.begin().into_iter().for_each(|command| session.command(command));
            }
            if session.exceeds(LIMIT) {
                return Err(format!("nothing more after {} s of processor time", LIMIT.as_secs()));
            }
        }
    }

    fn note(&mut self, heard: &Heard) -> std::result::Result<(), String> {
        match heard {
            Heard::Text { text } => self.text.push_str(&String::from_utf8_lossy(text)),
            Heard::Console { text, .. } => self.console.push_str(&String::from_utf8_lossy(text)),
            Heard::Crashed { text, .. } => return Err(format!("the guest crashed: {text}")),
            Heard::Fault { text } => {
                return Err(format!("the hypervisor found a fault in itself: {text}"));
            }
            _ => {}
        }
        Ok(())
    }
}
