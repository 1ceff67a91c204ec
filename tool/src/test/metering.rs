// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The meter and the guest's own counter must agree: on the instructions of one operation, and on all instructions of a
//! run. The guest's counter counts QEMU's virtual time, one nanosecond for each instruction.

use std::path::Path;
use std::time::Duration;

use crate::batch;
use crate::layout::Layout;
use crate::machine;
use crate::meter::Options;
use crate::meter::reading::{Group, Reading};
use crate::setup::images;
use crate::setup::qemu::Qemu;

/// Rows, and by how many instructions the guest's counter is ahead of the meter: QEMU books the rest of the
/// translated block when a system register traps in its middle (two instructions of the loop), and does not book an
/// instruction that faults.
const ROWS: [(&str, i64); 4] =
    [("null-hypercall", 0), ("self-sgi", 0), ("id-register", 2), ("io-kernel", -1)];
/// Iterations of the rows.
const ITERATIONS: u64 = 20_000;
/// What the two loops of a guest may differ by once, not in each iteration.
const ONCE: i64 = 32;
/// Iterations of the two runs whose totals are compared: the guest prints as many digits in both, and each digit exits.
const FEW: u64 = 30_000;
const MORE: u64 = 60_000;
/// Processor time of a run.
const LIMIT: Duration = Duration::from_secs(60);

/// What one run gave.
struct Run {
    reading: Reading,
    /// What the guest's counter counted over its loop, and over the same loop without the operation.
    ticks: u64,
    empty: u64,
}

impl Run {
    /// By the guest: nanoseconds in both loops.
    fn booked(&self) -> u64 {
        self.ticks + self.empty
    }

    /// By the meter: instructions since the guest was there.
    fn executed(&self) -> u64 {
        self.reading.total.guest + self.reading.total.outside
    }
}

/// Runs rows with the meter and compares.
///
/// # Errors
/// Says where meter and counter differ.
pub fn agree(layout: &Layout, qemu: &Qemu) -> Result<(), String> {
    let meter = images::meter(layout).map_err(|failure| failure.full())?;
    for (row, ahead) in ROWS {
        let run = run(layout, qemu, &meter, row, ITERATIONS)?;
        let metered = of_one_operation(&run.reading.groups).ok_or(format!("{row}: no visits"))?;
        let booked = (run.ticks - run.empty).cast_signed();
        let expected = (metered.cast_signed() + ahead) * ITERATIONS.cast_signed();
        if (booked - expected).abs() > ONCE {
            let counter = booked as f64 / ITERATIONS as f64;
            return Err(format!("{row}: {counter} by the guest's counter, {metered} by the meter"));
        }
    }
    totals(layout, qemu, &meter)
}

/// What the additional iterations of a longer run are to the meter, they must be to the counter.
fn totals(layout: &Layout, qemu: &Qemu, meter: &Path) -> Result<(), String> {
    let (row, _) = ROWS[0];
    let few = run(layout, qemu, meter, row, FEW)?;
    let more = run(layout, qemu, meter, row, MORE)?;
    let (executed, booked) = (more.executed() - few.executed(), more.booked() - few.booked());
    if executed != booked {
        return Err(format!("{row}: {booked} instructions more by the counter, {executed} by the meter"));
    }
    Ok(())
}

/// The most frequent visits of the groups that belong to the operation, and not to the guest's printing.
fn of_one_operation(groups: &[Group]) -> Option<u64> {
    let groups = groups.iter().filter(|group| group.visits >= ITERATIONS / 2);
    groups.map(|group| group.modal * group.visits / ITERATIONS).reduce(|one, other| one + other)
}

fn run(layout: &Layout, qemu: &Qemu, meter: &Path, row: &str, iterations: u64) -> Result<Run, String> {
    let name = format!("meter-{row}-{iterations}");
    let text = format!(
        "[[vm]]\nname = \"{row}\"\nkernel = \"guest:{row}\"\ncmdline = \"iterations={iterations}\"\n\
         memory = \"16MiB\"\nmachine = \"kvmtool\"\n"
    );
    let (mut boot, _) = machine::prepare_text(layout, &name, &text).map_err(|failure| failure.full())?;
    let out = layout.bundles().join(format!("{name}.json"));
    boot.counted = true;
    boot.extra = vec!["-plugin".into(), Options::default().argument(meter, &out)];
    let transcript = batch::run(&boot, &qemu.path, LIMIT, |_| {}).map_err(|failure| failure.full())?;
    let reading = Reading::load(&out).map_err(|failure| failure.full())?;
    let line = transcript.lines().find(|line| line.starts_with("@bench "));
    let line = line.ok_or_else(|| format!("{row}: no @bench line\n{}", transcript.all()))?;
    let field = |name: &str| {
        let value = line.split_whitespace().find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
        value.and_then(|value| value.parse().ok()).ok_or_else(|| format!("{row}: no {name}: {line}"))
    };
    match field("frequency")? {
        1_000_000_000 => Ok(Run { reading, ticks: field("ticks")?, empty: field("empty")? }),
        other => Err(format!("{row}: the counter runs at {other} Hz, not one tick for each instruction")),
    }
}
