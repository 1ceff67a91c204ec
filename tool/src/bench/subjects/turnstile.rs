// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Turnstile itself.

use super::{Modules, Outcome, Run, mitigations};
use crate::batch;
use crate::bench::platform::Platform;
use crate::bench::report::{Report, printable};
use crate::bench::rows::{Counted, Row};
use crate::failure::{Failure, Result};
use crate::isa::Isa;
use crate::machine;
use crate::meter::Options;
use crate::meter::reading::Reading;
use crate::setup::images;

/// Runs a row to its end.
pub fn run(run: &Run<'_>) -> Result<Outcome> {
    let row = run.row.own();
    let image = images::hypervisor_with(run.layout, run.row.isa, run.variant.features)?;
    let text = config(&row, run.iterations, run.variant.platform, &run.variant.vm);
    let mut boot = machine::prepare_own(run.layout, &run.folder, &text, &image)?;
    boot.counted = true;
    boot.cpu.push_str(run.variant.cpu);
    // Other platforms than the usual one are there to be compared with it, whatever their CPUs need.
    let alike =
        run.variant.platform.name != Platform::usual_of(run.row.isa).name && run.row.isa != Isa::Power64;
    let told = run.variant.mitigations.as_deref().or(alike.then_some("off"));
    if let Some(told) = told {
        boot.append = format!("{} mitigations={told}", boot.append);
    }
    for words in [run.variant.platform.append(), &run.variant.append] {
        boot.append = format!("{} {words}", boot.append).trim_end().to_owned();
    }
    let out = run.folder.join("reading.json");
    let begin = match row.counted {
        Counted::Boot => Some(images::entry(run.layout, row.isa, run.variant.features)?),
        _ => None,
    };
    let options = Options { trace: run.trace, footprint: run.footprint, boot: begin, ..Options::default() };
    boot.extra = vec!["-plugin".into(), options.argument(&run.meter, &out)];
    let transcript = batch::run(&boot, &run.qemu.path, run.limit, |_| {})?;
    let console = transcript.consoles.first().map_or("", String::as_str);
    let all = || printable(&transcript.all());
    let report = Report::find(&row, row.iterations(run.iterations), console)
        .map_err(|failure| failure.details(all()))?;
    if transcript.done != Some(0) {
        return Err(Failure::failed("the machine did not end in order").details(all()));
    }
    let version = format!("Turnstile {}", env!("CARGO_PKG_VERSION"));
    let mitigations = mitigations::of_turnstile(&printable(&transcript.text), told);
    Ok(Outcome { report, reading: Reading::load(&out)?, version, mitigations, modules: Modules::default() })
}

/// The machine of a row.
pub fn config(row: &Row, iterations: u64, platform: &Platform, more: &str) -> String {
    format!(
        "{machine}\n[[vm]]\nname = \"{name}\"\nkernel = \"guest:{guest}\"\ncmdline = \"{cmdline}\"\n\
         {map}{table}{more}\n",
        machine = platform.table(),
        name = row.name,
        guest = row.guest,
        cmdline = row.cmdline(iterations),
        // The memory map of kvmtool, where the same images run on any hypervisor.
        map = if row.isa == Isa::Arm64 { "machine = \"kvmtool\"\n" } else { "" },
        table = row.table(),
    )
}
