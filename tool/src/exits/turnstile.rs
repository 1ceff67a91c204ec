// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Turnstile under the load: the statistics of its VM.

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use turnstile_bundle::{Feature, Paravirt};

use super::guest::{LINUX_BEGIN, LINUX_END};
use super::{Case, Counts, Guest, Load};
use crate::bench::report::printable;
use crate::failure::{Failure, Result};
use crate::isa::Isa;
use crate::layout::{Layout, write_atomically};
use crate::machine;
use crate::session::{Heard, Notice, Session};
use crate::setup::debian::{self, Flavour};
use crate::setup::qemu::Qemu;
use crate::setup::{images, initramfs, last_lines};
use crate::top::collector::Collector;
use crate::top::reading::VmReading;

/// Processor time of a run.
const LIMIT: Duration = Duration::from_secs(300);
const TICK: Duration = Duration::from_millis(50);
/// So many ticks after its last word a guest has come to rest.
const REST: u32 = 40;
/// The load's time.
const MILLISECONDS: u32 = 1000;

/// Runs the load and returns the version with what was counted.
pub fn count(layout: &Layout, qemu: &Qemu, case: Case) -> Result<(String, Counts)> {
    if case.guest == Guest::Load {
        images::guests(layout, Isa::X86_64)?;
    }
    // The same without a load: what starting and reporting cost, and what comes until the sources fall silent. Instructions
    // are counted, so neither run feels that the other is beside it.
    let (with, without) = thread::scope(|scope| {
        let without = scope.spawn(|| run(layout, qemu, case, 0));
        (run(layout, qemu, case, MILLISECONDS), without.join())
    });
    let (console, with) = with?;
    let load = load_of(&console)?;
    let (console, without) = without.map_err(|_| Failure::failed("a run of the load panicked"))??;
    let load = load.without(load_of(&console)?);
    Ok((format!("Turnstile {}", env!("CARGO_PKG_VERSION")), Counts::of_turnstile(load, &with, &without)))
}

/// What the guest says last; it then waits to be switched off.
fn last_word(guest: Guest) -> &'static str {
    match guest {
        Guest::Load => "@done load",
        Guest::Linux => "reboot: System halted",
    }
}

/// Returns what the guest says of its load.
fn load_of(console: &str) -> Result<Load> {
    let failure = |what: String| Failure::failed(what).details(last_lines(&printable(console), 25));
    if let Some(error) = console.lines().find_map(|line| line.trim().strip_prefix("@error ")) {
        return Err(failure(format!("the guest reports: {}", printable(error))));
    }
    console.lines().find_map(Load::parse).ok_or_else(|| failure("the guest did not report".to_owned()))
}

/// The machine with the load; Linux has `initrd`.
fn config(case: Case, milliseconds: u32, initrd: &Path) -> String {
    let Case { guest, vcpus, pv_eoi } = case;
    let vm = match guest {
        Guest::Load => format!(
            "kernel = \"guest:load\"\ncmdline = \"stay milliseconds={milliseconds} {}\"\nmemory = \"32MiB\"",
            case.options()
        ),
        Guest::Linux => format!(
            "kernel = \"debian:linux\"\ninitrd = {initrd:?}\nmemory = \"256MiB\"\nparavirt = [{}]\n\
             cmdline = \"console=ttyS0 quiet turnstile.run=load,halt\"",
            offered(pv_eoi)
        ),
    };
    format!(
        "[machine]\nboard = \"q35\"\n\n[[vm]]\nname = \"{}\"\n{vm}\nvcpus = {vcpus}\nstatistics = true\n",
        guest.name()
    )
}

/// Writes Linux's initramfs with the length of its load in it: a boot is the same whatever it is.
fn write_initrd(layout: &Layout, milliseconds: u32, file: &Path) -> Result<()> {
    let debian = debian::ensure(layout, Isa::X86_64, Flavour::Cloud)?;
    let length = format!("{milliseconds:04}\n");
    write_atomically(file, &initramfs::with_file(&debian.initrd, "load", length.as_bytes())?)
}

/// All of KVM's paravirtual interface, with or without the end of interrupts.
fn offered(pv_eoi: bool) -> String {
    let offered = if pv_eoi { Paravirt::ALL } else { Paravirt::ALL.without(Feature::Eoi) };
    offered.iter().map(|feature| format!("\"{feature}\"")).collect::<Vec<_>>().join(", ")
}

/// Runs the guest to its last word and reads the statistics.
fn run(layout: &Layout, qemu: &Qemu, case: Case, milliseconds: u32) -> Result<(String, VmReading)> {
    let name = format!("exits-{milliseconds}");
    let initrd = layout.bundles().join(&name).join("initrd");
    if case.guest == Guest::Linux {
        write_initrd(layout, milliseconds, &initrd)?;
    }
    let (mut boot, _) = machine::prepare_text(layout, &name, &config(case, milliseconds, &initrd))?;
    boot.counted = true;
    let (sender, notices) = channel::<Notice>();
    let mut session = Session::start(&boot, &qemu.path, sender)?;
    let mut run = Run { guest: case.guest, console: String::new(), text: String::new(), asked: false };
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
    guest: Guest,
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
        let mut collector = Collector::new(vec![self.guest.name().to_owned()]);
        let mut silence = 0;
        loop {
            match notices.recv_timeout(TICK) {
                Ok(Notice::Heard(heard)) => {
                    if let Some(reading) = collector.hear(&heard) {
                        return reading.vms.into_iter().next().ok_or_else(|| "there is no VM".to_owned());
                    }
                    silence = 0;
                    self.note(&heard)?;
                }
                Ok(Notice::Ended { .. }) | Err(RecvTimeoutError::Disconnected) => {
                    return Err("the machine ended before its statistics were read".to_owned());
                }
                // What is read of a guest at rest is the same in each run.
                Err(RecvTimeoutError::Timeout) => {
                    silence += 1;
                    if !self.asked && silence >= REST && self.console.contains(last_word(self.guest)) {
                        self.asked = true;
                        collector.begin().into_iter().for_each(|command| session.command(command));
                    }
                }
            }
            if session.exceeds(LIMIT) {
                return Err(self.late());
            }
        }
    }

    /// Says how far the guest came in its time.
    fn late(&self) -> String {
        let came = match self.guest {
            _ if self.asked => "the hypervisor did not report",
            Guest::Linux if !self.console.contains(LINUX_BEGIN) => "the guest did not come to its load",
            Guest::Linux if !self.console.contains(LINUX_END) => "the guest's load did not end",
            _ => "the guest did not end",
        };
        format!("{came} in {} s of processor time", LIMIT.as_secs())
    }

    fn note(&mut self, heard: &Heard) -> std::result::Result<(), String> {
        match heard {
            Heard::Text { text } => self.text.push_str(&String::from_utf8_lossy(text)),
            Heard::Console { text, .. } => self.console.push_str(&String::from_utf8_lossy(text)),
            Heard::Crashed { text, .. } => return Err(format!("the guest crashed: {text}")),
            Heard::Fault { text } => {
                return Err(format!("the hypervisor reported a fault of its own: {text}"));
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{self, Surroundings};

    fn offers_pv_eoi(guest: Guest, pv_eoi: bool) -> bool {
        let case = Case { guest, vcpus: 2, pv_eoi };
        let text = config(case, 1000, Path::new("/a folder/initrd"));
        let guests = |_| vec!["load".to_owned()];
        let surroundings =
            Surroundings { folder: Path::new("/"), guests: &guests, services: &[], board: None };
        let vm = config::parse(&text, &surroundings).unwrap().vms.remove(0);
        assert_eq!((vm.vcpus, vm.statistics), (2, true));
        vm.machine.pc().unwrap().paravirt.has(Feature::Eoi)
    }

    #[test]
    fn linux_is_not_offered_it_and_the_load_does_not_use_it() {
        assert!(offers_pv_eoi(Guest::Linux, true) && !offers_pv_eoi(Guest::Linux, false));
        assert!(offers_pv_eoi(Guest::Load, true) && offers_pv_eoi(Guest::Load, false));
    }

    #[test]
    fn a_guest_that_is_late_says_how_far_it_came() {
        let late = |console: &str, asked| {
            Run { guest: Guest::Linux, console: console.to_owned(), text: String::new(), asked }.late()
        };
        assert!(late("Kernel panic", false).starts_with("the guest did not come to its load in "));
        assert!(late("turnstile: load begin\r\n..", false).starts_with("the guest's load did not end"));
        let end = "turnstile: load begin\r\n..\r\nturnstile: load end\r\n";
        assert!(late(end, false).starts_with("the guest did not end"));
        assert!(late(end, true).starts_with("the hypervisor did not report"));
    }
}
