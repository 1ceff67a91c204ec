// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Turnstile itself.

use std::ops::Range;

use super::{Modules, Outcome, Run, Variant, executed, mitigations, networks, vectors};
use crate::batch;
use crate::bench::platform::Platform;
use crate::bench::report::{Report, printable};
use crate::bench::rows::{Counted, Disk, Row};
use crate::config::Board;
use crate::failure::{Failure, Result};
use crate::isa::Isa;
use crate::layout::Layout;
use crate::machine;
use crate::meter::Options;
use crate::meter::reading::{Group, Reading};
use crate::meter::symbols::Symbols;
use crate::qemu::{Behind, Boot};
use crate::setup::images;

/// Runs a row to its end.
pub fn run(run: &Run<'_>) -> Result<Outcome> {
    let row = run.row.own();
    let image = images::hypervisor_with(run.layout, run.row.isa, run.variant.features)?;
    let text = config(&row, run.iterations, run.variant.platform, &run.variant.vm);
    let mut boot = match row.disk {
        Some(Disk::Nvme) => machine::assemble_own(run.layout, &run.folder, &text, &image)?,
        _ => machine::prepare_own(run.layout, &run.folder, &text, &image)?,
    };
    for drive in &mut boot.drives {
        drive.behind = Some(Behind::Zeros { bytes: DISK_SIZE << 20, latency: LATENCY });
    }
    boot.wired = row.wired;
    let told = vary(&mut boot, run);
    let out = run.folder.join("reading.json");
    let begin = match row.counted {
        Counted::Boot => Some(images::entry(run.layout, row.isa, run.variant.features)?),
        _ => None,
    };
    let options = Options {
        copy: copy(run.layout, &row)?,
        trace: run.trace,
        footprint: run.footprint,
        boot: begin,
        ..Options::default()
    };
    boot.extra = networks::emulator(run.variant.turn.filter(|_| row.peer).unwrap_or(0));
    boot.extra.extend(["-plugin".into(), options.argument(&run.meter, &out)]);
    let transcript = batch::run(&boot, &run.qemu.path, run.limit, |_| {})?;
    let console = transcript.consoles.first().map_or("", String::as_str);
    let all = || printable(&transcript.all());
    let report = Report::find(&row, row.iterations(run.iterations), console)
        .map_err(|failure| failure.details(all()))?;
    if transcript.done != Some(0) {
        return Err(Failure::failed("the machine did not end in order").details(all()));
    }
    let mitigations = mitigations::of_turnstile(&printable(&transcript.text), told);
    let version = version();
    Ok(Outcome { report, reading: Reading::load(&out)?, version, mitigations, modules: Modules::default() })
}

/// What is measured, for people.
pub fn version() -> String {
    format!("Turnstile {}", env!("CARGO_PKG_VERSION"))
}

/// Makes the machine that of the run's variant. Returns what it is told of mitigations, if anything.
pub fn vary<'a>(boot: &mut Boot, run: &'a Run<'_>) -> Option<&'a str> {
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
    told
}

/// The machine of a row.
pub fn config(row: &Row, iterations: u64, platform: &Platform, more: &str) -> String {
    format!(
        "{machine}\n[[vm]]\nname = \"{name}\"\nkernel = \"guest:{guest}\"\ncmdline = \"{cmdline}\"\n\
         {map}{table}{more}\n{services}",
        machine = platform.table(),
        name = row.name,
        guest = row.guest,
        cmdline = row.cmdline(iterations),
        map = map(row.isa),
        table = row.table(NEAR),
        services = services(row, platform.board, row.name),
    )
}

/// The line of a VM's memory map: on arm64 that of kvmtool, where the same images run on any hypervisor.
fn map(isa: Isa) -> &'static str {
    if isa == Isa::Arm64 { "machine = \"kvmtool\"\n" } else { "" }
}

/// The services of a row, in whose VM's place there is one of this name, and the other VM, if there are two: what is measured is a device
/// outside the hypervisor. Of most rows it is not.
pub fn services(row: &Row, board: Board, vm: &str) -> String {
    if row.peer {
        return peer(row, board);
    }
    if let Some(disk) = row.disk {
        return table_of(disk, board);
    }
    if row.balloon {
        return format!("[pool]\nsize = \"{}MiB\"\n", row.memory);
    }
    if row.drives() {
        return String::new();
    }
    let Some(program) = service(row.isa, row.name) else { return String::new() };
    let more = match program {
        "doorbell" => "device = \"extra\"\nmemory = true\ntime-limit = \"1s\"\n",
        _ => "",
    };
    // Behind those of the VM.
    let own = if row.own_cpu { format!("cpus = [{}]\n", row.vcpus) } else { String::new() };
    format!("[[service]]\nname = \"{program}\"\nprogram = \"{program}\"\nvm = \"{vm}\"\n{more}{own}")
}

/// The size of a row's disk in MiB.
const DISK_SIZE: u64 = 4;

/// How long QEMU takes for a command of a row's disk controller, in nanoseconds of the computer's time. It is long: QEMU does commands
/// beside the CPUs, and would often have done one before the program that gives it the command is left, which no real one has.
const LATENCY: u64 = 4_000_000;

/// The disk of a row. A controller is guarded where the board has an IOMMU.
fn table_of(disk: Disk, board: Board) -> String {
    let mut table = format!("[[disk]]\nname = \"data\"\nsize = \"{DISK_SIZE}MiB\"\ntime-limit = \"1s\"\n");
    if disk == Disk::Nvme {
        table.push_str(&format!("device = \"nvme0\"\ntrusted = {}\n", !board.has_iommu()));
    }
    table
}

/// The networks of a row's VM, and of the other one where that has its own.
const NEAR: &str = "lan";
const FAR: &str = "far";

/// The other VM of a row, and the network of both, or one for each with a network card, which is guarded where the board has an IOMMU. An
/// emulator that others keep from running is not to be taken for a service that loops.
fn peer(row: &Row, board: Board) -> String {
    let Row { guest, options, .. } = row;
    let network = |name: &str| format!("[[network]]\nname = \"{name}\"\ntime-limit = \"1s\"\n");
    let uplink =
        |card: &str| format!("uplink = \"{card}\"\ncard = \"e1000e\"\ntrusted = {}\n", !board.has_iommu());
    let (far, networks) = match row.wired {
        false => (NEAR, network(NEAR)),
        true => (FAR, [network(NEAR), uplink("net0"), network(FAR), uplink("net1")].concat()),
    };
    format!(
        "[[vm]]\nname = \"peer\"\nkernel = \"guest:{guest}\"\ncmdline = \"peer {options}\"\n{}{}{networks}",
        map(row.isa),
        row.table(far),
    )
}

/// The program of a row's service, if it has one: the very one that runs, since its symbols are looked for by this name.
fn service(isa: Isa, row: &str) -> Option<&'static str> {
    match row {
        // The serial port of kvmtool's memory map.
        "io-user" if isa == Isa::Arm64 => Some("uart-16550"),
        "io-user" => Some("uart"),
        "doorbell" | "doorbell-busy" | "service-cpu" => Some("doorbell"),
        "packet" | "packet-pairs" | "packet-1500" | "packet-batch" | "packet-sleeping" | "packet-uplink"
        | "packet-1cpu" | "segment" => Some("switch"),
        "disk-read" | "disk-write" | "disk-batch" | "disk-read-mmio" | "touch-lent" => Some("disk"),
        "console-write" => Some("console"),
        "give-back" | "give-back-batch" => Some("balloon"),
        "drive-read" | "drive-write" | "drive-batch" => Some("drive"),
        _ => None,
    }
}

/// Where the service of a row copies bytes of guests. A package does not know.
fn copy(layout: &Layout, row: &Row) -> Result<Option<Range<u64>>> {
    match service(row.isa, row.name).filter(|_| !layout.is_installed()) {
        Some(program) => images::copy_of_service(layout, row.isa, program),
        None => Ok(None),
    }
}

/// Services on AMD64 and POWER are above this, and the hypervisor is below.
const SERVICES: u64 = 1 << 40;

/// The functions of a variant, and of the service of a row, where these visits were.
pub fn symbols(layout: &Layout, variant: &Variant, row: &str, visits: &[&Group]) -> Result<Symbols> {
    let isa = variant.platform.isa();
    let own = Symbols::from_elf(&images::program_with(layout, isa, variant.features))?;
    // Where no vectors tell, code is found by its instructions: those of services are not the hypervisor's.
    let steps: Vec<_> = executed(visits).into_iter().filter(|step| step.pc < SERVICES).collect();
    let own = own.fitted(vectors(visits), &steps);
    // A package has no symbols of services.
    let program = service(isa, row).filter(|_| !layout.is_installed());
    let program = program.map(|name| images::service_program(layout, isa, name));
    let programs = program.map(|file| Symbols::from_elf(&file)).transpose()?;
    Ok(own.beside(programs.into_iter().collect(), &executed(visits)))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::bench::rows;
    use crate::config::{self, Program, Surroundings};

    #[test]
    fn symbols_are_those_of_the_service_that_runs() {
        let programs = ["balloon", "console", "disk", "doorbell", "drive", "switch", "uart", "uart-16550"]
            .map(str::to_owned);
        let mut found = 0;
        for row in Isa::ALL.into_iter().flat_map(rows::of) {
            let guests = |_| vec![row.guest.to_owned()];
            let surroundings =
                Surroundings { folder: Path::new(""), guests: &guests, services: &programs, board: None };
            let text = super::config(row, 16, Platform::usual_of(row.isa), "");
            let config = config::parse(&text, &surroundings).unwrap();
            let runs: Vec<&Program> = config.services.iter().map(|service| &service.program.value).collect();
            let named = service(row.isa, row.name).map(|name| Program::Ours(name.to_owned()));
            // A network for each of two cards.
            let count = if row.wired { 2 } else { named.iter().len() };
            let expected: Vec<_> = named.iter().cycle().take(count).collect();
            assert_eq!(runs, expected, "{} on {}", row.name, row.isa);
            found += runs.len();
        }
        assert!(found > 0);
    }
}
