// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `turnstile bench`: what each exit costs, in instructions.

pub mod budgets;
pub mod measure;
pub mod native;
mod report;
pub mod rows;
pub mod subjects;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use budgets::Budgets;
use measure::Measured;
use rows::Row;

use crate::cli;
use crate::failure::{Context, Failure, Result};
use crate::layout::{Layout, can_write, write_named};
use crate::setup;
use crate::setup::qemu::Qemu;
use crate::ui;

/// The iterations of the seed's guests, with which budgets are recorded.
pub const ITERATIONS: u64 = 1 << 20;
/// Runs at a time: each is one thread of QEMU's.
const PARALLEL: usize = 2;

/// Measures, prints, and compares with the budgets.
pub fn bench(layout: &Layout, options: &cli::Bench) -> Result<()> {
    let rows = rows::select(&options.rows)?;
    if (options.check || options.update_budgets) && options.iterations != ITERATIONS {
        let what = format!("budgets hold for {ITERATIONS} iterations, not for {}", options.iterations);
        return Err(Failure::usage(what).help("leave --iterations out"));
    }
    if let Some(file) = &options.save {
        can_write(file)?;
    }
    if options.native {
        return native::bench(layout, options, &rows);
    }
    let qemu = setup::qemu::ensure(layout, options.qemu.program.as_deref())?;
    let measured = measure_all(layout, &qemu, &rows, options.iterations)?;
    let document = report::document(&measured);
    let json = serde_json::to_string_pretty(&document).context(|| "cannot write the figures".into())?;
    if options.json {
        println!("{json}");
    } else {
        print(&qemu, options.iterations, &measured);
    }
    if let Some(file) = &options.save {
        write_named(file, format!("{json}\n").as_bytes())?;
    }
    if options.check {
        Budgets::load(layout)?.check(budgets::figures(&measured))?;
        ui::note("every row is within its budget");
    }
    if options.update_budgets {
        update(layout, &measured, options.allow_raise)?;
    }
    Ok(())
}

fn update(layout: &Layout, measured: &[Measured], allow_raise: bool) -> Result<()> {
    let mut budgets = Budgets::load(layout)?;
    let changes = budgets.update(budgets::figures(measured), allow_raise)?;
    budgets.save()?;
    for change in &changes {
        ui::note(&format!("budget of {change}"));
    }
    if changes.is_empty() {
        ui::note("the budgets are what was measured already");
    }
    Ok(())
}

/// Prints what the numbers are, and the table.
pub fn print(qemu: &Qemu, iterations: u64, measured: &[Measured]) {
    println!("{}", report::preface(&qemu.version, iterations, measured));
    println!("{}", report::table(measured));
}

/// Measures rows, two at a time, and returns them in their order.
pub fn measure_all(
    layout: &Layout,
    qemu: &Qemu,
    rows: &[&'static Row],
    iterations: u64,
) -> Result<Vec<Measured>> {
    setup::images::guests(layout)?;
    setup::images::hypervisor(layout)?;
    let step = ui::Step::start_counted("measuring", rows.len() as u64);
    let results: Mutex<Vec<Option<Result<Measured>>>> = Mutex::new(rows.iter().map(|_| None).collect());
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..PARALLEL.min(rows.len()) {
            scope.spawn(|| {
                while let Some((index, row)) = take(rows, &next) {
                    step.detail(row.name);
                    let result = measure::measure(layout, qemu, row, iterations);
                    step.advance();
                    if let Ok(mut results) = results.lock()
                        && let Some(slot) = results.get_mut(index)
                    {
                        *slot = Some(result);
                    }
                }
            });
        }
    });
    step.done();
    let results = results.into_inner().map_err(|_| Failure::failed("a measurement panicked"))?;
    results.into_iter().map(|result| result.unwrap_or_else(|| Err(Failure::failed("not measured")))).collect()
}

fn take<'r>(rows: &'r [&'static Row], next: &AtomicUsize) -> Option<(usize, &'r &'static Row)> {
    let index = next.fetch_add(1, Ordering::Relaxed);
    rows.get(index).map(|row| (index, row))
}
