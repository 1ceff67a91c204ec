// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `bench --native`: the same guests and the same monitor on the Linux KVM of this machine, where there is time
//! and, if the kernel allows counting them, there are cycles. What else runs here disturbs: the median of many
//! short batches is reported.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::Serialize;

use super::report::{Report, printable};
use super::rows::Row;
use super::subjects::{kvm, peer};
use crate::cli;
use crate::failure::{Context, Failure, Result};
use crate::isa::Isa;
use crate::layout::{Layout, write_named};
use crate::setup::images;
use crate::sheet::{Column, Sheet};
use crate::ui;

/// The only architecture that the guests run on.
const ARCHITECTURE: &str = "aarch64";
const KVM: &str = "/dev/kvm";
/// Processor time that a row may use, in seconds, and iterations that surely fit into one more.
const SECONDS: u64 = 60;
const ITERATIONS_PER_SECOND: u64 = 10_000;
/// What the guest is told: report batches, and mark the loop during which cycles are counted.
pub const GUEST_OPTIONS: &str = "batches marks";

/// What a row costs on this machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Native {
    /// The row's name.
    pub row: String,
    /// Nanoseconds of one operation: the median of batches, without the loop around it.
    pub nanoseconds: f64,
    /// Cycles of one operation, in the guest and outside it, with the loop around it.
    pub cycles: Option<f64>,
    /// Why something is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The JSON form of a native measurement.
#[derive(Serialize)]
struct Document<'a> {
    native: u32,
    kernel: &'a str,
    rows: &'a [Native],
}

/// Measures rows on this machine and prints them.
pub fn bench(layout: &Layout, options: &cli::Bench, rows: &[&'static Row]) -> Result<()> {
    check(std::env::consts::ARCH, Path::new(KVM))?;
    images::guests(layout, Isa::Arm64)?;
    let monitor = images::vmm(layout, Isa::Arm64)?;
    // First touches depend on the host's pages, vCPUs that take turns need a host of their own, and the monitor has neither networks
    // nor disks.
    let has = |row: &&Row| !row.touches && row.shared.is_none() && !row.drives();
    let rows: Vec<&Row> = rows.iter().copied().filter(has).collect();
    let step = ui::Step::start_counted("measuring", rows.len() as u64);
    let mut found = Vec::new();
    for row in &rows {
        step.detail(row.name);
        found.push(measure(layout, &monitor, row, options.iterations)?);
        step.advance();
    }
    step.done();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let document = Document { native: 1, kernel: kernel.trim(), rows: &found };
    let json = serde_json::to_string_pretty(&document).context(|| "cannot write the figures".into())?;
    if options.json {
        println!("{json}");
    } else {
        ui::say(&format!(
            "Linux {} KVM on this machine: time and cycles of one operation, median of batches.",
            kernel.trim()
        ));
        println!("{}", sheet(&found, &rows).show(ui::terminal_width()));
    }
    match &options.save {
        Some(file) => write_named(file, format!("{json}\n").as_bytes()),
        None => Ok(()),
    }
}

/// Says what this machine lacks.
fn check(architecture: &str, kvm: &Path) -> Result<()> {
    const HELP: &str = "leave --native out to measure in QEMU, which any machine can";
    if architecture != ARCHITECTURE {
        let what = format!(
            "the guests are for arm64, and this machine is {architecture}: it cannot run them natively"
        );
        return Err(Failure::missing(what).help(format!("run this on an arm64 machine with Linux; {HELP}")));
    }
    if !kvm.exists() {
        let what = format!("there is no {}: this Linux offers no KVM", kvm.display());
        let help = format!("boot the kernel in EL2, with KVM in it; {HELP}");
        return Err(Failure::missing(what).help(help));
    }
    use rustix::fs::{Access, access};
    access(kvm, Access::READ_OK | Access::WRITE_OK).map_err(|error| {
        let what = format!("{} cannot be used: {}", kvm.display(), std::io::Error::from(error));
        Failure::missing(what).help(format!("run this as root or as a member of the group kvm; {HELP}"))
    })
}

fn measure(layout: &Layout, monitor: &Path, row: &Row, iterations: u64) -> Result<Native> {
    let mut command = Command::new(monitor);
    command
        .arg("--guest")
        .arg(layout.guest(Isa::Arm64, row.guest))
        .args(kvm::machine(row).split_whitespace());
    command.args(["--cycles", "--cmdline"]).arg(format!("{} {GUEST_OPTIONS}", row.cmdline(iterations)));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().context(|| format!("cannot start {}", monitor.display()))?;
    let limit = Duration::from_secs(SECONDS + iterations / ITERATIONS_PER_SECOND);
    let name = |failure: Failure| failure.context_line(row.name);
    let said = peer::hear(child, "the monitor", limit).map_err(name)?;
    let said = printable(&said);
    read(row.name, &said).map_err(|what| name(Failure::failed(what).details(said)))
}

/// Reads what the guest and the monitor said.
pub fn read(row: &str, said: &str) -> std::result::Result<Native, String> {
    let mut lines = said.lines().map(str::trim);
    if let Some(error) = lines.clone().find_map(|line| line.strip_prefix("@error ")) {
        return Err(format!("it reports: {error}"));
    }
    let note = lines.clone().find_map(|line| line.strip_prefix("@note ")).map(str::to_owned);
    let cycles = lines.clone().find_map(|line| line.strip_prefix("@cycles ")?.parse::<u64>().ok());
    let line = lines.find(|line| line.starts_with("@bench ")).ok_or("it ended without its @bench line")?;
    let report = Report::parse(line).ok_or("it has no report")??;
    if report.row != row {
        return Err(format!("it measured {}", report.row));
    }
    let field = |name: &str| {
        let mut words = line.split_whitespace();
        let value = words.find_map(|word| word.strip_prefix(name)?.strip_prefix('=')?.parse::<u64>().ok());
        value.filter(|value| *value > 0).ok_or_else(|| format!("the line has no `{name}`: {line}"))
    };
    let ticks = field("median")?.saturating_sub(field("median_empty")?) as f64;
    let nanoseconds = ticks * 1e9 / report.frequency as f64 / field("batch")? as f64;
    let cycles = cycles.map(|cycles| cycles as f64 / report.iterations as f64);
    Ok(Native { row: row.to_owned(), nanoseconds, cycles, note })
}

fn sheet(found: &[Native], rows: &[&'static Row]) -> Sheet {
    let numbers = ["ns", "cycles"].map(Column::number);
    let columns = [Column::key("row"), Column::remark("operation")].into_iter().chain(numbers);
    let mut sheet = Sheet::new(columns.chain([Column::text("note")]));
    for (native, row) in found.iter().zip(rows) {
        let cycles = native.cycles.map_or_else(|| "-".to_owned(), |cycles| format!("{cycles:.0}"));
        let nanoseconds = format!("{:.1}", native.nanoseconds);
        sheet.add([&native.row, row.what, &nanoseconds, &cycles, native.note.as_deref().unwrap_or("")]);
    }
    sheet
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sheet::assert_fits;

    const SAID: &str = "@begin\r\n@cycles 640000\n@end\r\n@bench row=io-user iterations=128 ticks=900 empty=9 \
                        frequency=50000000 batch=64 median=330 median_empty=10\r\n";

    #[test]
    fn time_is_the_medians_and_cycles_are_the_loops() {
        let native = read("io-user", SAID).unwrap();
        assert_eq!((native.nanoseconds, native.cycles), (100.0, Some(5000.0)));
        let without = SAID.replace("@cycles 640000", "@note the processor's cycles cannot be counted");
        let native = read("io-user", &without).unwrap();
        assert_eq!((native.cycles, native.note.is_some()), (None, true));
    }

    #[test]
    fn the_table_fits() {
        let rows = &super::super::rows::ROWS;
        let found: Vec<Native> = rows
            .iter()
            .map(|row| Native { row: row.name.to_owned(), ..read("io-user", SAID).unwrap() })
            .collect();
        let rows: Vec<&Row> = rows.iter().collect();
        let parts = ["self-sgi-overflow-90", "100.0", "5000"];
        assert_fits(|width| sheet(&found, &rows).show(width), &parts);
    }

    #[test]
    fn what_is_no_measurement_is_refused() {
        assert!(read("self-sgi", SAID).unwrap_err().contains("io-user"));
        assert!(read("io-user", &SAID.replace(" median=330", "")).unwrap_err().contains("`median`"));
        assert!(read("io-user", "@error vCPU 0: no\n").unwrap_err().contains("vCPU 0: no"));
        assert!(read("io-user", "").is_err());
    }

    #[test]
    fn says_what_the_machine_lacks() {
        let failure = check("x86_64", Path::new(KVM)).unwrap_err().to_string();
        assert!(failure.contains("x86_64") && failure.contains("arm64"), "{failure}");
        let failure = check("aarch64", Path::new("/no/such/device")).unwrap_err().to_string();
        assert!(failure.contains("/no/such/device"), "{failure}");
        assert!(check("aarch64", Path::new("/dev/null")).is_ok());
    }
}
