// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The emulated machine in which packages of another architecture run their scripts.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::Child;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::config::Board;
use crate::failure::{Context, Failure, Result};
use crate::isa::Isa;
use crate::layout::Layout;
use crate::qemu::{Boot, as_value};
use crate::setup::debian::{self, Debian, Flavour};
use crate::setup::qemu::{self, Qemu};
use crate::setup::{initramfs, last_lines};
use crate::ui;

/// How its last line begins.
const LAST: &str = "turnstile: image ";
/// What dpkg says before it configures a package.
const PACKAGE: &str = "Setting up ";
/// How long it may say nothing: each package says that it is next. On a busy computer that may be long.
const SILENCE: Duration = Duration::from_secs(1200);
/// How long it may take at all. On a quiet machine it is two to four minutes.
const LIMIT: Duration = Duration::from_secs(3600);
/// Its memory in bytes.
const MEMORY: u64 = 1 << 30;

/// What such a machine needs.
pub struct Machine<'l> {
    layout: &'l Layout,
    isa: Isa,
    qemu: Qemu,
    debian: Debian,
}

impl<'l> Machine<'l> {
    /// Gets what it needs.
    pub fn ensure(layout: &'l Layout, isa: Isa) -> Result<Self> {
        let qemu = qemu::ensure(layout, isa, None)?;
        let debian = debian::ensure(layout, isa, Flavour::Cloud)?;
        Ok(Machine { layout, isa, qemu, debian })
    }

    /// Lets the packages in an image run their scripts, and gives its files their owners. `folder` is for files of this run.
    pub fn finish(&self, folder: &Path, image: &Path, owners: &str) -> Result<()> {
        let busybox = fs::read(self.debian.initrd.with_file_name("busybox"));
        let busybox = busybox.context(|| "cannot read busybox".into())?;
        let drivers = debian::drivers(self.layout, self.isa, Flavour::Cloud)?;
        let initrd = folder.join("install.cpio");
        let bytes = initramfs::installer(busybox, owners, drivers)?;
        fs::write(&initrd, bytes).context(|| format!("cannot write {}", initrd.display()))?;
        let step = ui::Step::start(format!("configuring Debian's packages for {}", self.isa));
        let result = follow(self.boot(&initrd, image).start(&self.qemu.path)?, &step);
        let _ = fs::remove_file(&initrd);
        result.map(|()| step.done())
    }

    fn boot(&self, initrd: &Path, image: &Path) -> Boot {
        let mut boot = Boot::new(self.debian.kernel.clone(), initrd.to_path_buf(), MEMORY, 1);
        let (board, cpu, console) = match self.isa {
            // The one of few features: QEMU computes pointers' authentication at great length.
            Isa::Arm64 => (Board::Virt, "cortex-a57", "ttyAMA0"),
            Isa::X86_64 => (Board::Q35, "max", "ttyS0"),
            Isa::Power64 => (Board::Powernv9, "power9", "hvc0"),
        };
        (boot.board, boot.cpu, boot.virtualization) = (board, cpu.to_owned(), false);
        boot.append = format!("console={console} quiet panic=-1");
        // If the tool ends, the image is thrown away: nothing has to reach the disk before. What finds no room there is an error of
        // the machine's, not a reason to stand still.
        let drive = format!("if=none,id=disk,format=raw,cache=unsafe,werror=report,file={}", as_value(image));
        boot.extra = ["-drive", &drive, "-device", "virtio-blk-pci,drive=disk"].map(OsString::from).to_vec();
        boot
    }
}

/// Follows what the machine says until it ends.
fn follow(mut child: Child, step: &ui::Step) -> Result<()> {
    // Whoever waits for input is told that there is none.
    drop(child.stdin.take());
    let complaint = child.stderr.take().map(|mut stderr| {
        thread::spawn(move || {
            let mut text = String::new();
            let _ = stderr.read_to_string(&mut text);
            text
        })
    });
    let (sender, lines) = mpsc::channel();
    if let Some(stdout) = child.stdout.take() {
        thread::spawn(move || {
            let lines = BufReader::new(stdout).split(b'\n').map_while(std::io::Result::ok);
            lines
                .map(|line| String::from_utf8_lossy(&line).trim().to_owned())
                .try_for_each(|line| sender.send(line))
        });
    }
    let mut told = Told::default();
    let begin = Instant::now();
    let late = loop {
        match lines.recv_timeout(SILENCE) {
            Ok(line) => told.hear(line, step),
            Err(RecvTimeoutError::Disconnected) => break false,
            Err(RecvTimeoutError::Timeout) => break true,
        }
        if begin.elapsed() > LIMIT {
            break true;
        }
    };
    if late {
        let _ = child.kill();
    }
    let _ = child.wait();
    let complaint = complaint.and_then(|reader| reader.join().ok()).unwrap_or_default();
    told.judge(late, &complaint)
}

/// What a machine has said.
#[derive(Default)]
struct Told {
    all: String,
    result: Option<String>,
}

impl Told {
    fn hear(&mut self, line: String, step: &ui::Step) {
        if let Some(package) = line.strip_prefix(PACKAGE) {
            step.detail(package.trim_end_matches(" ..."));
        }
        if let Some(result) = line.strip_prefix(LAST) {
            self.result = Some(result.to_owned());
        }
        self.all.push_str(&line);
        self.all.push('\n');
    }

    fn judge(self, late: bool, complaint: &str) -> Result<()> {
        let what = match self.result.as_deref() {
            Some("ok") if !late => return Ok(()),
            Some(result) if result != "ok" => format!("the machine that configures the packages {result}"),
            _ if late => "the machine that configures the packages does not go on".to_owned(),
            _ => "the machine that configures the packages ended before it was done".to_owned(),
        };
        let details = format!("{}\n{complaint}", last_lines(&self.all, 20));
        Err(Failure::failed(what).details(details.trim().to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_judged_by_its_last_line() {
        let judged = |lines: &[&str], late, complaint: &str| {
            let step = ui::Step::start("");
            let mut told = Told::default();
            lines.iter().for_each(|line| told.hear((*line).to_owned(), &step));
            told.judge(late, complaint).map_err(|failure| failure.full())
        };
        assert_eq!(
            judged(&["Setting up tar ...", "turnstile: image ok", "reboot: Power down"], false, ""),
            Ok(())
        );
        let said =
            judged(&["dpkg: error", "turnstile: image failed: there are no users"], false, "").unwrap_err();
        assert!(
            said.contains("packages failed: there are no users") && said.contains("dpkg: error"),
            "{said}"
        );
        let said = judged(&["Setting up tar ..."], true, "").unwrap_err();
        assert!(said.contains("does not go on"), "{said}");
        let said = judged(&[], false, "qemu: no such disk").unwrap_err();
        assert!(said.contains("ended before") && said.contains("no such disk"), "{said}");
    }
}
