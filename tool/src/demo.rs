// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `turnstile demo`: the main job, from nothing to the table.

use std::time::{Duration, Instant};

use crate::bench::selection::Selection;
use crate::bench::{self, assemble};
use crate::cli;
use crate::failure::{Failure, Result};
use crate::isa::Isa;
use crate::layout::Layout;
use crate::session::{Heard, describe_stop};
use crate::setup;
use crate::setup::debian::Flavour;
use crate::setup::qemu::{Found, Qemu};
use crate::style::{BOLD, DIM, GREEN};
use crate::{batch, machine, prose, ui};

/// The Linux guest of the demo.
fn linux(isa: Isa) -> String {
    let console = match isa {
        // The device tree names it.
        Isa::Arm64 => "",
        Isa::X86_64 => "console=ttyS0 ",
        Isa::Power64 => "console=hvc0 ",
    };
    format!(
        "[machine]\nisa = \"{isa}\"\n\n[[vm]]\nname = \"linux\"\nkernel = \"debian:linux\"\n\
         initrd = \"debian:busybox\"\ncmdline = \"{console}turnstile.run=poweroff\"\nvcpus = 2\n\
         memory = \"256MiB\"\n"
    )
}

/// Processor time that Linux may take to boot and power off.
const LINUX_LIMIT: Duration = Duration::from_secs(120);
/// The lines of Linux's boot that tell the story; it has some hundred.
const TELLING: [&str; 13] = [
    "Booting Linux on",
    "Linux version",
    "Machine model",
    "psci: PSCIv",
    "redistributor 0 region",
    "arch_timer: cp15",
    "Hypervisor detected",
    "kvm-clock: cpu",
    "KVM setup pv IPIs",
    "APIC: Switched APIC routing",
    "smp: Brought up",
    "turnstile: shell ready",
    "reboot: Power down",
];

/// Shows everything, getting first what is missing.
pub fn demo(layout: &Layout, options: &cli::Demo) -> Result<()> {
    let begin = Instant::now();
    setup::space::ensure(layout, setup::space::DEMO)?;
    heading("1. What it uses");
    let mut emulators = Vec::new();
    for isa in Isa::ALL {
        emulators.push((isa, prepare(layout, isa, options)?));
    }
    for (isa, qemu) in &emulators {
        heading(&format!("2. An unmodified Linux on {isa}, with two vCPUs"));
        boot_linux(layout, qemu, *isa)?;
    }
    for (isa, qemu) in &emulators {
        heading(&format!("3. What an exit costs on {isa}"));
        let selection = Selection::new(*isa, &[], &[], options.iterations)?;
        let measured = assemble::measure(layout, qemu, &selection)?;
        bench::print(&measured.document);
        if let Some(failure) = measured.failures.into_iter().next() {
            return Err(failure);
        }
    }

    heading("What to try next");
    hints(layout);
    println!("\n{:.0} seconds in all.", begin.elapsed().as_secs_f64());
    Ok(())
}

/// Says what to try next.
fn hints(layout: &Layout) {
    let (program, examples) = match layout.is_installed() {
        true => ("turnstile", "/usr/share/doc/turnstile/examples"),
        false => ("./x", "examples"),
    };
    let mut hints = vec![
        (format!("run {examples}/one-linux.toml"), "a shell in a guest with four vCPUs (Ctrl-A x leaves)"),
        (format!("run {examples}/x86-linux.toml"), "the same on a PC"),
        (format!("run {examples}/power-linux.toml"), "the same on POWER"),
        (format!("run {examples}/two-linux.toml"), "two guests: Ctrl-A n switches, `reboot -f` restarts one"),
        ("bench --isa x86_64".to_owned(), "the table for PCs"),
        ("check FILE.toml".to_owned(), "lists the problems in a configuration of your own"),
    ];
    if !layout.is_installed() {
        hints
            .push(("bench --subjects all".to_owned(), "the table, with the other hypervisors also measured"));
        hints.push(("test".to_owned(), "the whole test suite"));
    }
    let width = hints.iter().map(|(command, _)| command.len()).max().unwrap_or_default();
    let place = prose::within(ui::terminal_width());
    for (command, what) in hints {
        println!("{}", prose::behind(&format!("  {program} {command:width$}  "), what, place));
    }
}

/// Gets what an architecture takes; returns its emulator.
fn prepare(layout: &Layout, isa: Isa, options: &cli::Demo) -> Result<Qemu> {
    // The one that the user chose emulates one architecture; the other one's is found.
    let choice = options.qemu.program.as_deref();
    let choice = choice.filter(|choice| matches!(setup::qemu::look(isa, Some(choice)), Found::Good(_)));
    let qemu = setup::qemu::ensure(layout, isa, choice)?;
    println!("QEMU {} at {}", qemu.version, qemu.path.display());
    let debian = setup::debian::ensure(layout, isa, Flavour::Cloud)?;
    println!("Debian's kernel, {}", debian.versions.linux);
    let hypervisor = setup::images::hypervisor(layout, isa)?;
    setup::images::guests(layout, isa)?;
    println!("the hypervisor, {}", Layout::shown(&hypervisor));
    Ok(qemu)
}

fn heading(text: &str) {
    anstream::println!("\n{BOLD}{text}{BOLD:#}");
}

/// Boots Linux to its shell and lets it power off, showing the telling lines of its console.
fn boot_linux(layout: &Layout, qemu: &Qemu, isa: Isa) -> Result<()> {
    let (boot, _) = machine::prepare_text(layout, "demo-linux", &linux(isa))?;
    let step = ui::Step::start("booting");
    let mut console = Condenser::default();
    let transcript = batch::run(&boot, &qemu.path, LINUX_LIMIT, |heard| match heard {
        Heard::Console { text, .. } => {
            let place = prose::within(ui::terminal_width()).saturating_sub(4);
            for line in console.take(text) {
                step.detail(line.clone());
                if TELLING.iter().any(|telling| line.contains(telling)) {
                    let line: String = line.chars().take(place).collect();
                    step.aside(|| anstream::println!("  {DIM}|{DIM:#} {line}"));
                }
            }
        }
        Heard::Stopped { reason, .. } => {
            let reason = describe_stop(*reason).replace('-', " ");
            step.aside(|| anstream::println!("  {GREEN}the guest has {reason}{GREEN:#}"));
        }
        _ => {}
    })?;
    step.done();
    let ready = transcript.lines().any(|line| line.starts_with("turnstile: shell ready"));
    match (ready, transcript.done) {
        (true, Some(0)) => Ok(()),
        _ => Err(Failure::failed("Linux did not reach its shell and power off").details(transcript.all())),
    }
}

/// Cuts a console's bytes into lines.
#[derive(Debug, Default)]
struct Condenser {
    begun: Vec<u8>,
}

impl Condenser {
    /// Takes bytes and returns the lines that they complete, without what cannot be printed.
    fn take(&mut self, bytes: &[u8]) -> Vec<String> {
        self.begun.extend_from_slice(bytes);
        let mut lines = Vec::new();
        while let Some(end) = self.begun.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.begun.drain(..=end).collect();
            let text = String::from_utf8_lossy(&line);
            lines.push(text.chars().filter(|c| !c.is_control()).collect());
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_out_whole() {
        let mut condenser = Condenser::default();
        assert!(condenser.take(b"Booting Li").is_empty());
        assert_eq!(condenser.take(b"nux\r\n\x1b[6nnext\nlast"), ["Booting Linux", "[6nnext"]);
    }
}
