// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The meter and the guest's own counter must agree: on the instructions of one operation, and on all instructions of a
//! run. The guest's counter counts QEMU's virtual time, one nanosecond for each instruction. And the meter must not be slow.

use std::path::Path;
use std::time::Duration;

use turnstile::batch;
use turnstile::bench::platform::Platform;
use turnstile::bench::rows::{ROWS, Row};
use turnstile::bench::subjects::{self, Outcome, Run, Subject, Variant};
use turnstile::failure::{Failure, Result};
use turnstile::layout::Layout;
use turnstile::machine;
use turnstile::meter::Options;
use turnstile::meter::reading::Group;
use turnstile::setup::images;
use turnstile::setup::qemu::Qemu;

/// Rows, and by how many instructions the guest's counter is ahead of the meter: QEMU does not book an instruction that
/// faults, nor one that ends its translated block with a trap, and books the rest of the block when a system register
/// traps in its middle (two instructions of the loop).
const COMPARED: [(&str, i64); 4] =
    [("null-hypercall", 0), ("self-sgi", 0), ("id-register", 2), ("io-kernel", -1)];
/// Iterations of the rows.
const ITERATIONS: u64 = 20_000;
/// What the two loops of a guest may differ by once, not in each iteration: some visits take a longer way than the usual one.
const ONCE: i64 = 1024;
/// Iterations of the two runs whose totals are compared: the guest prints as many digits in both, and each digit exits.
const FEW: u64 = 30_000;
const MORE: u64 = 60_000;
/// Processor time of a run.
const LIMIT: Duration = Duration::from_secs(60);

/// Iterations of the runs whose processor time is compared, and how many runs there are of each kind: the best counts,
/// for what else this computer does can only make one slower.
const TIMED: u64 = 1 << 20;
const REPEATED: usize = 3;
/// By how many percent the meter may slow a run.
const SLOWDOWN: f64 = 60.0;

/// Runs rows with the meter and compares.
pub fn agree(layout: &Layout, qemu: &Qemu) -> Result<()> {
    let meter = images::meter(layout)?;
    for (name, ahead) in COMPARED {
        let Outcome { report, reading, .. } = measure(layout, qemu, &meter, row(name)?, ITERATIONS)?;
        let metered = of_one_operation(&reading.groups);
        let metered = metered.ok_or_else(|| Failure::failed(format!("{name}: no visits")))?;
        let booked = (report.ticks - report.empty).cast_signed();
        let expected = (metered.cast_signed() + ahead) * ITERATIONS.cast_signed();
        if (booked - expected).abs() > ONCE {
            let counter = booked as f64 / ITERATIONS as f64;
            let what = format!("{name}: {counter} by the guest's counter, {metered} by the meter");
            return Err(Failure::failed(what));
        }
    }
    totals(layout, qemu, &meter)
}

/// What the additional iterations of a longer run are to the meter, they must be to the counter.
fn totals(layout: &Layout, qemu: &Qemu, meter: &Path) -> Result<()> {
    let (name, _) = COMPARED[0];
    let few = measure(layout, qemu, meter, row(name)?, FEW)?;
    let more = measure(layout, qemu, meter, row(name)?, MORE)?;
    let all = |outcome: &Outcome| {
        let (report, total) = (&outcome.report, &outcome.reading.total);
        (total.guest + total.outside, report.ticks + report.empty)
    };
    let ((fewer_executed, fewer_booked), (executed, booked)) = (all(&few), all(&more));
    let (executed, booked) = (executed - fewer_executed, booked - fewer_booked);
    if executed != booked {
        let what = format!("{name}: {booked} instructions more by the counter, {executed} by the meter");
        return Err(Failure::failed(what));
    }
    Ok(())
}

/// The most frequent visits of the groups that belong to the operation, and not to the guest's printing.
fn of_one_operation(groups: &[Group]) -> Option<u64> {
    let groups = groups.iter().filter(|group| group.visits >= ITERATIONS / 2);
    groups.map(|group| group.modal * group.visits / ITERATIONS).reduce(|one, other| one + other)
}

fn row(name: &str) -> Result<&'static Row> {
    let found = ROWS.iter().find(|row| row.name == name);
    found.ok_or_else(|| Failure::failed(format!("there is no row {name}")))
}

fn measure(
    layout: &Layout,
    qemu: &Qemu,
    meter: &Path,
    row: &'static Row,
    iterations: u64,
) -> Result<Outcome> {
    let run = Run {
        layout,
        qemu,
        row,
        iterations,
        limit: LIMIT,
        trace: false,
        footprint: false,
        meter: meter.to_path_buf(),
        folder: layout.bundles().join(format!("meter-{}-{iterations}", row.name)),
        variant: &Variant::default(),
    };
    let outcome = subjects::run(Subject::Turnstile, &run)?;
    match outcome.report.frequency {
        1_000_000_000 => Ok(outcome),
        other => Err(Failure::failed(format!(
            "{}: the counter runs at {other} Hz, not one tick for each instruction",
            row.name
        ))),
    }
}

/// Compares the processor time of QEMU with and without the meter, where a visit is as short as it can be: the meter has
/// most to do at its begin and end.
pub fn slowdown(layout: &Layout, qemu: &Qemu) -> Result<()> {
    let meter = images::meter(layout)?;
    let (name, _) = COMPARED[0];
    let text = subjects::config(row(name)?, TIMED, Platform::usual(), "");
    let (mut without, _) = machine::prepare_text(layout, "meter-slowdown", &text)?;
    without.counted = true;
    let out = layout.bundles().join("meter-slowdown.json");
    let mut with = without.clone();
    with.extra = vec!["-plugin".into(), Options::default().argument(&meter, &out)];
    let mut best = [Duration::MAX; 2];
    for _ in 0..REPEATED {
        for (boot, best) in [&without, &with].into_iter().zip(&mut best) {
            *best = batch::run(boot, &qemu.path, LIMIT, |_| {})?.used.min(*best);
        }
    }
    let [without, with] = best.map(|best| best.as_secs_f64());
    let percent = (with / without - 1.0) * 100.0;
    match percent <= SLOWDOWN {
        true => Ok(()),
        false => Err(Failure::failed(format!(
            "the meter slows a run by {percent:.0} %, at most {SLOWDOWN} %: {without:.2} s without, {with:.2} s with"
        ))),
    }
}
