// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `turnstile meter`: counts what any hypervisor executes between exit and entry, on any QEMU command line.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;

use super::Options;
use super::reading::Reading;
use super::symbols::Symbols;
use super::table;
use crate::cli;
use crate::failure::{Context, Failure, Result};
use crate::layout::Layout;
use crate::setup;

/// Runs QEMU with the meter and prints what it counted.
pub fn meter(layout: &Layout, options: &cli::Meter) -> Result<()> {
    let (program, arguments) = options.command.split_first().ok_or_else(|| {
        Failure::usage("there is no command to measure").help("turnstile meter -- qemu-system-aarch64 …")
    })?;
    let found = setup::find_program(&program.to_string_lossy())
        .or_else(|| {
            Some(PathBuf::from(program)).filter(|path| path.components().count() > 1 && path.is_file())
        })
        .ok_or_else(|| {
            let what = format!("cannot find the program {}", program.to_string_lossy());
            Failure::missing(what).help("put a QEMU command line after --: -- qemu-system-aarch64 -machine …")
        })?;
    // What names no symbols is better known before the run than after it.
    let symbols = options.symbols.iter().map(|file| Symbols::from_file(file)).collect::<Result<Vec<_>>>();
    let symbols = symbols.map_err(Failure::wrong_choice)?;
    supports_plugins(&found)?;
    let library = setup::images::meter(layout)?;
    let out = layout.bundles().join("meter.json");
    let cli::Meter { guest, trace, footprint, .. } = options;
    let plugin = Options { guest: guest.clone(), trace: *trace, footprint: *footprint, ..Options::default() };
    let mut qemu = Command::new(&found);
    qemu.args(arguments).arg("-plugin").arg(plugin.argument(&library, &out));
    if options.json {
        // Standard output is the reading's alone.
        qemu.stdout(std::io::stderr());
    }
    let status = run(&mut qemu, &out)?;
    let reading = Reading::load(&out).map_err(|_| cut_short(&found, status))?;
    let _ = std::fs::remove_file(&out);
    report(&reading, symbols, options)?;
    match status.success() {
        true => Ok(()),
        false => Err(Failure::failed(format!("QEMU ended with {status}"))),
    }
}

/// Runs QEMU on the user's own terminal, to its end.
fn run(qemu: &mut Command, out: &Path) -> Result<ExitStatus> {
    if let Some(folder) = out.parent() {
        std::fs::create_dir_all(folder).context(|| format!("cannot create {}", folder.display()))?;
    }
    // Ctrl-C goes to QEMU, too, which ends in order and writes the reading: the tool waits for that.
    signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::default())
        .context(|| "cannot listen for signals".into())?;
    qemu.status().context(|| format!("cannot start {}", qemu.get_program().to_string_lossy()))
}

/// Asks a QEMU whether it can load plugins: its help has the option only then.
fn supports_plugins(program: &Path) -> Result<()> {
    let shown = program.display();
    let output = Command::new(program).arg("--help").stdin(Stdio::null()).output();
    let help =
        String::from_utf8_lossy(&output.context(|| format!("cannot start {shown}"))?.stdout).into_owned();
    if !help.contains("QEMU emulator version") {
        let what = format!("{shown} is not QEMU (its --help does not say so)");
        return Err(Failure::usage(what).help("put a QEMU command line after --: -- qemu-system-aarch64 …"));
    }
    if !help.contains("-plugin ") {
        let what = format!("{shown} cannot load plugins");
        let help = "it was built without --enable-plugins; Debian's packages have them";
        return Err(Failure::missing(what).help(help));
    }
    Ok(())
}

/// The failure of a run that left no reading.
fn cut_short(program: &Path, status: ExitStatus) -> Failure {
    let failure = match status.signal() {
        Some(signal) => Failure::failed(format!("signal {signal} killed QEMU, so there is no reading")),
        None => {
            Failure::failed(format!("{} ended with {status} before there was a reading", program.display()))
        }
    };
    failure.help("its output above says why; to end a machine that does not stop, press Ctrl-C or use quit")
}

/// Prints the reading, as JSON or for people.
fn report(reading: &Reading, symbols: Vec<Symbols>, options: &cli::Meter) -> Result<()> {
    if options.json {
        let text = serde_json::to_string_pretty(reading).context(|| "cannot write the reading".into())?;
        println!("{text}");
    }
    if reading.total.guest == 0 {
        return Err(no_guest(reading));
    }
    if !options.json {
        let first = reading.groups.first().cloned().unwrap_or_default();
        let fitted = symbols.into_iter().map(|symbols| symbols.fitted(first.vectors, &first.trace));
        let symbols = fitted.reduce(Symbols::merged).unwrap_or_default();
        table::print(reading, &symbols, options.top, options.trace);
    }
    Ok(())
}

fn no_guest(reading: &Reading) -> Failure {
    let rule = match reading.target.as_str() {
        "aarch64" => {
            "a guest runs at EL1 or EL0 behind stage 2 (HCR_EL2.VM): does the machine have EL2 \
                      (virtualization=on), and did the hypervisor start a guest?"
        }
        "ppc64" => "a guest runs with MSR[HV] clear: did the hypervisor start one?",
        _ => "did the hypervisor start one?",
    };
    Failure::failed("no guest was seen")
        .help(format!("{rule}\nIf you gave --guest: does the range contain the guest's code?"))
}
