// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs a measuring guest and reads what it says.
//!
//! Under `-icount shift=0` one instruction is one nanosecond of virtual time, so the guest's own counter counts
//! the instructions of everything on its CPU. The guest subtracts nothing: it reports the loop with the
//! operation and the same loop without it.

use std::path::Path;
use std::time::Duration;

use super::rows::Row;
use crate::batch::{self, Transcript};
use crate::failure::{Context, Failure, Result};
use crate::layout::Layout;
use crate::machine;
use crate::qemu::Boot;
use crate::setup::qemu::Qemu;

/// Iterations of the two short runs that count exits: as many digits in both, because each digit that the guest
/// prints exits, too.
const FEW: u64 = 1000;
const MORE: u64 = 9000;
/// Processor time for booting, in seconds, and iterations that surely fit into one more second.
const BOOT_SECONDS: u64 = 60;
const ITERATIONS_PER_SECOND: u64 = 10_000;

/// What a guest reported: the fields of its `@bench` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The row's name.
    pub row: String,
    /// How many operations there were.
    pub iterations: u64,
    /// What the counter advanced over all of them.
    pub ticks: u64,
    /// What it advanced over as many empty rounds of the loop.
    pub empty: u64,
    /// The counter's frequency in hertz.
    pub frequency: u64,
}

impl Report {
    /// Reads a line `@bench row=… iterations=… ticks=… empty=… frequency=…`; other lines are `None`.
    pub fn parse(line: &str) -> Option<std::result::Result<Self, String>> {
        let fields = line.trim().strip_prefix("@bench ")?;
        let field = |name: &str| {
            let value =
                fields.split_whitespace().find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
            value.ok_or_else(|| format!("the line has no `{name}`: {line}"))
        };
        let number = |name: &str| {
            let value = field(name)?;
            value.parse::<u64>().map_err(|_| format!("`{name}` is no number: {line}"))
        };
        let read = || {
            Ok(Report {
                row: field("row")?.to_owned(),
                iterations: number("iterations")?,
                ticks: number("ticks")?,
                empty: number("empty")?,
                frequency: number("frequency")?,
            })
        };
        Some(read().and_then(Self::plausible))
    }

    fn plausible(self) -> std::result::Result<Self, String> {
        match &self {
            Report { iterations: 0, .. } | Report { frequency: 0, .. } => {
                Err("it counted nothing".to_owned())
            }
            Report { ticks, empty, .. } if ticks < empty => Err("the empty loop took longer".to_owned()),
            _ => Ok(self),
        }
    }

    /// Instructions per operation outside the guest, to two decimals.
    pub fn instructions(&self) -> f64 {
        let ticks = (self.ticks - self.empty) as f64;
        let instructions = ticks * 1e9 / self.frequency as f64 / self.iterations as f64;
        (instructions * 100.0).round() / 100.0
    }
}

/// One measured row.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The row.
    pub row: &'static Row,
    /// What the guest reported.
    pub report: Report,
    /// Exits to the hypervisor per operation.
    pub exits: f64,
}

/// Measures one row: its instructions with `iterations`, and its exits by two short runs.
pub fn measure(layout: &Layout, qemu: &Qemu, row: &'static Row, iterations: u64) -> Result<Measured> {
    let report = instructions(layout, qemu, row, iterations)?;
    let exits = exits(layout, qemu, row)?;
    Ok(Measured { row, report, exits })
}

fn instructions(layout: &Layout, qemu: &Qemu, row: &Row, iterations: u64) -> Result<Report> {
    let boot = prepare(layout, row, iterations)?;
    let limit = Duration::from_secs(BOOT_SECONDS + iterations / ITERATIONS_PER_SECOND);
    let transcript = batch::run(&boot, &qemu.path, limit, |_| {})?;
    read(row, iterations, &transcript)
}

/// Counts exits per operation: the difference between two runs is what the additional operations caused.
fn exits(layout: &Layout, qemu: &Qemu, row: &Row) -> Result<f64> {
    let mut counts = [0; 2];
    for (count, iterations) in counts.iter_mut().zip([FEW, MORE]) {
        let mut boot = prepare(layout, row, iterations)?;
        let log = boot.image_folder().join(format!("exits-{iterations}.log"));
        boot.extra = vec!["-d".into(), "int".into(), "-D".into(), log.clone().into()];
        let transcript = batch::run(&boot, &qemu.path, Duration::from_secs(BOOT_SECONDS), |_| {})?;
        read(row, iterations, &transcript)?;
        let text = std::fs::read(&log).context(|| format!("cannot read QEMU's log {}", log.display()))?;
        *count = count_exits(&String::from_utf8_lossy(&text));
        let _ = std::fs::remove_file(&log);
    }
    let [fewer, more] = counts;
    // Its other figures may be a digit longer: that is far below the second decimal.
    let exits = more.saturating_sub(fewer) as f64 / (MORE - FEW) as f64;
    Ok((exits * 100.0).round() / 100.0)
}

/// Counts the exceptions from a guest (EL1 or EL0) to the hypervisor in a log of QEMU's `-d int`.
fn count_exits(log: &str) -> u64 {
    let is_exit = |line: &&str| line.ends_with("from EL1 to EL2") || line.ends_with("from EL0 to EL2");
    log.lines().filter(is_exit).count() as u64
}

fn prepare(layout: &Layout, row: &Row, iterations: u64) -> Result<Boot> {
    let (boot, _) =
        machine::prepare_text(layout, &format!("bench-{}-{iterations}", row.name), &config(row, iterations))?;
    Ok(Boot { counted: true, ..boot })
}

/// The machine of a row: the memory map of kvmtool, where the same images run on any hypervisor.
pub fn config(row: &Row, iterations: u64) -> String {
    let pmu = if row.pmu { "trapped" } else { "off" };
    format!(
        "[[vm]]\nname = \"{name}\"\nkernel = \"guest:{name}\"\ncmdline = \"iterations={iterations}\"\n\
         vcpus = {vcpus}\nmemory = \"16MiB\"\nmachine = \"kvmtool\"\npmu = \"{pmu}\"\n",
        name = row.name,
        vcpus = row.vcpus
    )
}

/// Finds the guest's report.
fn read(row: &Row, iterations: u64, transcript: &Transcript) -> Result<Report> {
    let failure = |what: String| Failure::failed(format!("{}: {what}", row.name)).details(transcript.all());
    if let Some(error) = transcript.lines().find_map(|line| line.trim().strip_prefix("@error ")) {
        return Err(failure(format!("the guest reports: {error}")));
    }
    let Some(report) = transcript.lines().find_map(Report::parse) else {
        return Err(failure("the guest ended without its @bench line".to_owned()));
    };
    let report = report.map_err(failure)?;
    if report.row != row.name || report.iterations != iterations {
        return Err(failure(format!("the guest measured {} {} times", report.row, report.iterations)));
    }
    match transcript.done {
        Some(0) => Ok(report),
        _ => Err(failure("the machine did not end in order".to_owned())),
    }
}

/// Where a bundle is: temporary files go beside it.
trait Folder {
    fn image_folder(&self) -> &Path;
}

impl Folder for Boot {
    fn image_folder(&self) -> &Path {
        self.bundle.as_deref().and_then(Path::parent).unwrap_or(Path::new("."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "@bench row=self-sgi iterations=1024 ticks=205824 empty=1024 frequency=1000000000\r";

    #[test]
    fn reads_the_guests_line() {
        let report = Report::parse(LINE).unwrap().unwrap();
        assert_eq!((report.row.as_str(), report.iterations, report.empty), ("self-sgi", 1024, 1024));
        assert_eq!(report.instructions(), 200.0);
        assert_eq!(Report::parse("@boot"), None);
    }

    #[test]
    fn frequency_scales_ticks_to_instructions() {
        let slow = Report { row: "x".into(), iterations: 16, ticks: 48, empty: 2, frequency: 62_500_000 };
        assert_eq!(slow.instructions(), 46.0);
        let thirds =
            Report { row: "x".into(), iterations: 3, ticks: 100, empty: 0, frequency: 1_000_000_000 };
        assert_eq!(thirds.instructions(), 33.33);
    }

    #[test]
    fn refuses_lines_that_cannot_be_true() {
        for (from, to) in [
            ("ticks=205824", "ticks=1023"),
            ("iterations=1024", "iterations=0"),
            ("frequency=1000000000", "frequency=0"),
            ("empty=1024", "empty=-1"),
            ("empty=1024", ""),
        ] {
            let line = LINE.replace(from, to);
            assert!(Report::parse(&line).unwrap().is_err(), "{line}");
        }
    }

    #[test]
    fn counts_only_exits_of_the_guest() {
        let log = "Taking exception 11 [Hypervisor Call] on CPU 0\n...from EL1 to EL2\n...with ESR 0x16/0x5a000000\n\
                   Exception return from AArch64 EL2 to AArch64 EL1 PC 0x80000040\n...from EL2 to EL2\n\
                   ...from EL0 to EL2\n...from EL0 to EL1\n";
        assert_eq!(count_exits(log), 2);
    }
}
