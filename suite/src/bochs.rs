// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The same image on another emulator, whose SVM names the next instruction: what the hypervisor does on such CPUs runs
//! nowhere else. A guest measures exits there, too: an instruction is a tick of Bochs's time-stamp counter.

use std::time::Duration;

use turnstile::bench::report::Report;
use turnstile::bench::rows;
use turnstile::failure::{Failure, Result};
use turnstile::isa::Isa;
use turnstile::layout::Layout;
use turnstile::machine;
use turnstile::setup::{bochs, images};

use super::report::Verdict;

/// Processor time of a run.
const LIMIT: Duration = Duration::from_secs(180);
/// Iterations of the guests.
const ITERATIONS: u64 = 4096;
/// Rows whose exits end behind their instruction, and the most that one may cost.
const ROWS: [(&str, f64); 4] =
    [("null-hypercall", 90.0), ("cpuid", 120.0), ("msr-write", 120.0), ("port-read", 150.0)];

/// Boots the rows, if Bochs is there or may be installed.
pub fn check(layout: &Layout) -> Verdict {
    match bochs::PROGRAM.ensure(layout, bochs::look) {
        Ok(bochs) => Verdict::from(run(layout, &bochs)),
        Err(failure) => Verdict::Skipped(failure.full()),
    }
}

fn run(layout: &Layout, bochs: &bochs::Bochs) -> Result<()> {
    let image = images::hypervisor(layout, Isa::X86_64)?;
    images::guests(layout, Isa::X86_64)?;
    for (name, most) in ROWS {
        let row = rows::select(Isa::X86_64, &[name.to_owned()])?;
        let Some(row) = row.first() else { continue };
        let folder = layout.bundles().join(format!("bochs-{name}"));
        let text = format!(
            "[machine]\nboard = \"pc\"\n\n[[vm]]\nname = \"{name}\"\nkernel = \"guest:{}\"\nmemory = \"32MiB\"\n\
             cmdline = \"{}\"\n",
            row.guest,
            row.cmdline(ITERATIONS)
        );
        let boot = machine::prepare_own(layout, &folder, &text, &image)?;
        let bundle = boot.bundle.ok_or_else(|| Failure::failed("there is no bundle"))?;
        let said = bochs.boot(&folder, &boot.image, &bundle, "mitigations=off", LIMIT)?;
        let report = Report::find(row, row.iterations(ITERATIONS), &said)?;
        let ticks = (report.ticks - report.empty) as f64 / report.iterations as f64;
        if ticks > most {
            return Err(Failure::failed(format!("{name} takes {ticks} instructions, at most {most}")));
        }
    }
    Ok(())
}
