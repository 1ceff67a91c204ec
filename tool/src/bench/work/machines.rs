// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A boot of Debian's Linux that does work and powers off, with every instruction counted.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use super::rows::{WORK, Work};
use crate::batch;
use crate::bench::platform::Platform;
use crate::bench::report::printable;
use crate::bench::subjects::{Subject, kvm, linux, peer};
use crate::config::Board;
use crate::failure::{Context, Failure, Result};
use crate::isa::Isa;
use crate::layout::{Layout, write_atomically};
use crate::machine;
use crate::meter::Options;
use crate::meter::reading::{Reading, Total};
use crate::qemu::Boot;
use crate::setup::debian::{self, Debian, Flavour};
use crate::setup::qemu::Qemu;
use crate::setup::{images, initramfs, last_lines};

/// Linux's memory in MiB.
const MEMORY: u64 = 512;
/// Its CPUs: work that is not to use the second one is kept on the first.
pub const CPUS: u16 = 2;
/// Processor time of a boot.
const LIMIT: Duration = Duration::from_secs(600);
/// What the guest says when all work is done.
const DONE: &str = "turnstile: work ok";

/// On what Linux runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Under {
    /// No hypervisor.
    Nothing,
    /// A hypervisor.
    Subject(Subject),
}

impl Under {
    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Under::Nothing => "bare",
            Under::Subject(subject) => subject.name(),
        }
    }

    /// Its heading.
    pub fn title(self) -> &'static str {
        match self {
            Under::Nothing => "bare",
            Under::Subject(subject) => subject.title(),
        }
    }

    /// Whether Linux guests run on it here: on KVM in the monitor of `peers/`.
    pub fn has_linux(self) -> bool {
        match self {
            Under::Nothing | Under::Subject(Subject::Turnstile) => true,
            Under::Subject(subject) => host(subject).is_some(),
        }
    }
}

/// The KVM host that is a subject.
fn host(subject: Subject) -> Option<kvm::Host> {
    match subject {
        Subject::KvmVhe => Some(kvm::Host::Vhe),
        Subject::KvmNvhe => Some(kvm::Host::Nvhe),
        Subject::KvmSvm => Some(kvm::Host::Svm),
        Subject::KvmHv => Some(kvm::Host::Hv),
        _ => None,
    }
}

/// One boot.
#[derive(Clone, Copy, Debug)]
pub struct Machine<'a> {
    /// The checkout.
    pub layout: &'a Layout,
    /// QEMU.
    pub qemu: &'a Qemu,
    /// The architecture.
    pub isa: Isa,
    /// On what.
    pub under: Under,
    /// The work that is done twice as often as usual.
    pub twice: Option<&'static Work>,
    /// Whether it is told apart what runs in the guest.
    pub apart: bool,
}

/// What the guest's program is told: all work, in as many bytes whatever is done twice, so that all boots are alike up to it.
fn told(twice: Option<&Work>) -> String {
    let mut told = String::new();
    for work in &WORK {
        let times = if twice == Some(work) { 2 } else { 1 };
        // Writing to a text does not fail.
        let _ = writeln!(told, "{} {:06}", work.name, times * work.operations);
    }
    told
}

impl Machine<'_> {
    /// What is measured, for people.
    pub fn shown(&self) -> String {
        let twice = self.twice.map_or_else(String::new, |work| format!(", {} twice", work.name));
        format!("work in Linux, {}{twice}", self.under.title())
    }

    /// Boots, and returns the version of the hypervisor with what the meter counted.
    pub fn count(&self) -> Result<(String, Total)> {
        let parts = [self.under.name(), self.twice.map_or("once", |work| work.name)];
        let apart = if self.apart { "-apart" } else { "" };
        let name = format!("work-{}{apart}", parts.join("-"));
        let folder = self.layout.bundles().join(&name);
        std::fs::create_dir_all(&folder).context(|| format!("cannot create {}", folder.display()))?;
        let guest = self.guest(&folder)?;
        let out = folder.join("reading.json");
        let (version, console) = match self.under {
            Under::Nothing => {
                (format!("Linux {}", guest.versions.linux), self.play(self.bare(&guest), &out)?)
            }
            Under::Subject(Subject::Turnstile) => {
                (format!("Turnstile {}", env!("CARGO_PKG_VERSION")), self.turnstile(&name, &guest, &out)?)
            }
            Under::Subject(subject) => {
                let host = host(subject).ok_or_else(|| {
                    Failure::failed(format!("Linux guests of {} are not measured", subject.title()))
                })?;
                let boot = kvm::boot_linux(host, self.layout, &guest, CPUS, &folder, &self.words())?;
                (kvm::version(host, self.layout)?, self.play(boot, &out)?)
            }
        };
        if !console.lines().any(|line| line.trim() == DONE) {
            let what = format!("the guest did not say \"{DONE}\"");
            return Err(Failure::failed(what).details(last_lines(&printable(&console), 25)));
        }
        let total = Reading::load(&out)?.total;
        // What is left of a boot that failed may tell why.
        let _ = std::fs::remove_dir_all(&folder);
        Ok((version, total))
    }

    /// Debian's kernel with the work in its initramfs.
    fn guest(&self, folder: &Path) -> Result<Debian> {
        let debian = debian::ensure(self.layout, self.isa, Flavour::Cloud)?;
        let program = images::work(self.layout, self.isa)?;
        let program = std::fs::read(&program).context(|| format!("cannot read {}", program.display()))?;
        let initrd = folder.join("initramfs");
        let bytes = initramfs::with_program(&debian.initrd, "work", &program, told(self.twice).as_bytes())?;
        write_atomically(&initrd, &bytes)?;
        Ok(Debian { initrd, ..debian })
    }

    /// The kernel's command line.
    fn cmdline(&self) -> String {
        linux::cmdline(self.isa, "")
    }

    /// The machine without a hypervisor.
    fn bare(&self, guest: &Debian) -> Boot {
        let mut boot = Boot::new(guest.kernel.clone(), guest.initrd.clone(), MEMORY << 20, CPUS.into());
        boot.board = Board::usual(self.isa);
        boot.virtualization = false;
        boot.append = self.cmdline();
        boot
    }

    /// What KVM's monitor is told.
    fn words(&self) -> String {
        format!("--vcpus={CPUS} --memory={MEMORY} \"--cmdline={}\"", self.cmdline())
    }

    /// Runs a machine with plain text on its serial line, and returns that.
    fn play(&self, mut boot: Boot, out: &Path) -> Result<String> {
        self.measured(&mut boot, out)?;
        peer::play(&boot, &self.qemu.path, LIMIT)
    }

    /// Runs the VM, and returns its console.
    fn turnstile(&self, name: &str, guest: &Debian, out: &Path) -> Result<String> {
        let text = format!(
            "{}\n[[vm]]\nname = \"linux\"\nkernel = {:?}\ninitrd = {:?}\nvcpus = {CPUS}\n\
             memory = \"{MEMORY}MiB\"\ncmdline = \"{}\"\n",
            Platform::usual_of(self.isa).table(),
            guest.kernel,
            guest.initrd,
            self.cmdline()
        );
        let (mut boot, _) = machine::prepare_text(self.layout, name, &text)?;
        self.measured(&mut boot, out)?;
        let transcript = batch::run(&boot, &self.qemu.path, LIMIT, |_| {})?;
        match transcript.done {
            Some(0) => Ok(transcript.consoles.into_iter().next().unwrap_or_default()),
            _ => {
                Err(Failure::failed("the machine did not end in order").details(printable(&transcript.all())))
            }
        }
    }

    /// Puts the meter into a machine.
    fn measured(&self, boot: &mut Boot, out: &Path) -> Result<()> {
        let meter = images::meter(self.layout)?;
        let options = Options { total: !self.apart, ..Options::default() };
        boot.counted = true;
        boot.extra.extend(["-plugin".into(), options.argument(&meter, out)]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boots_differ_in_a_number_alone() {
        let (once, twice) = (told(None), told(Some(&WORK[1])));
        assert_eq!(once.len(), twice.len());
        let pairs = once.lines().zip(twice.lines());
        let differ: Vec<_> = pairs.filter(|(once, twice)| once != twice).collect();
        assert_eq!(differ, [("pipe-2cpus 048000", "pipe-2cpus 096000")]);
    }

    #[test]
    fn only_where_linux_guests_run_they_are_measured() {
        let hosts = [Subject::KvmVhe, Subject::KvmNvhe, Subject::KvmSvm, Subject::KvmHv];
        assert!(Under::Nothing.has_linux() && hosts.iter().all(|host| Under::Subject(*host).has_linux()));
        assert!(!Under::Subject(Subject::Xen).has_linux());
    }
}
