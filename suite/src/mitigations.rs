// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mitigations of speculative execution: each CPU gets what it needs, says so, and guests work as ever; what it costs
//! is what the guarded vectors say.

use std::path::Path;

use turnstile::bench::assemble::{self, Assembled};
use turnstile::bench::document::Document;
use turnstile::bench::rows::FEWEST;
use turnstile::bench::selection::Selection;
use turnstile::bench::subjects::Variant;
use turnstile::failure::{Failure, Result};
use turnstile::isa::Isa;
use turnstile::layout::Layout;
use turnstile::qemu::Boot;
use turnstile::setup::qemu::Qemu;

use super::scenario::{Record, Scenario, Step};
use super::{guests, programs};

/// What the hypervisor says where it does something on exits, or could not.
const SAID: &str = "on each exit";

/// The scenarios of this topic.
pub fn scenarios() -> Vec<Scenario> {
    let a57 = "a loop of 8 on each exit; open to guests: branch targets, store bypass";
    vec![needed("cortex-a57", a57), needed("neoverse-n1", "a loop of 24 on each exit"), needless(), forced()]
}

/// A CPU that needs something, and gets it without being asked.
fn needed(cpu: &'static str, sentence: &'static str) -> Scenario {
    let scenario = guests::selftest("virt", 2, "trapped");
    let config = format!("[machine]\ncpu = \"{cpu}\"\n\n{}", scenario.config);
    let mut steps = vec![Step::Text(sentence)];
    steps.extend(scenario.steps);
    Scenario { name: format!("arm64/mitigations/{cpu}"), config, steps, ..scenario }
}

/// A CPU that needs nothing gets nothing, and nothing is said.
fn needless() -> Scenario {
    let scenario = guests::selftest("kvmtool", 1, "off");
    let quiet = |record: &Record| match record.text.contains(SAID) {
        true => Err("something is done on exits of a CPU that needs nothing".to_owned()),
        false => programs::no_failures(record),
    };
    Scenario { name: "arm64/mitigations/max".to_owned(), ..scenario }.judge(quiet)
}

/// Guarded tables of both kinds: one VM keeps statistics, the other does not.
fn forced() -> Scenario {
    let scenario = super::statistics::exact();
    let mut steps = vec![Step::Text("a loop of 132 on each exit")];
    steps.extend(scenario.steps);
    let force = |boot: &mut Boot, _: &Path| -> Result<()> {
        boot.append.push_str(" mitigations=loop:132");
        Ok(())
    };
    Scenario { name: "arm64/mitigations/statistics".to_owned(), steps, ..scenario }.prepare(force)
}

/// Properties of QEMU's `max` that make it a Zen 2 with current microcode: SPEC_CTRL is switched. TCG ignores the writes.
pub const SWITCHING: &str =
    ",family=23,model=49,stepping=0,+ibpb,+ibrs,+amd-stibp,+amd-ssbd,x-force-features=on";
/// What the hypervisor says of it.
pub const ZEN2: &str = "on each exit IBPB, return stack, SPEC_CTRL; between vCPUs nothing; for good SSBD";
/// A Zen 3: IBPB, and VERW.
const BARRIERS: &str = ",family=25,model=1,stepping=1,+ibpb,+ibpb-brtype,+amd-no-ssb,x-force-features=on";
/// A CPU after Zen 5, on which exits need nothing.
const BETWEEN: &str =
    ",family=26,model=80,stepping=0,+ibpb,+auto-ibrs,+srso-no,+ibpb-brtype,+amd-no-ssb,x-force-features=on";

/// The scenarios of PCs.
pub fn scenarios_of_pcs() -> Vec<Scenario> {
    let memory = "32MiB";
    let selftest = |name: &str, more: &str| programs::selftest(Isa::X86_64, name, memory, more);
    let switching = selftest("zen2", "vcpus = 2\nstatistics = true\ncmdline = \"test=msr,apic,timers,cpus\"");
    let barriers = selftest("zen3", "cmdline = \"test=msr,cpuid,state\"");
    let between = programs::facilities_shared(Isa::X86_64, "16MiB");
    let zen3 =
        "on each exit IBPB, return stack; between vCPUs nothing; for good nothing; open to guests: buffers";
    let later = "on each exit nothing; between vCPUs IBPB; for good Automatic IBRS";
    vec![
        on_pc("zen2", ZEN2, switching).prepare(|boot, _| like(boot, SWITCHING)),
        on_pc("zen3", zen3, barriers).prepare(|boot, _| like(boot, BARRIERS)),
        on_pc("later", later, between).prepare(|boot, _| like(boot, BETWEEN)),
        needless_on_pc(selftest("max", "cmdline = \"test=msr\"")),
    ]
}

/// A PC whose CPU needs something, and gets it without being asked.
fn on_pc(name: &str, sentence: &'static str, scenario: Scenario) -> Scenario {
    let mut steps = vec![Step::Text(sentence)];
    steps.extend(scenario.steps);
    Scenario { name: format!("x86_64/mitigations/{name}"), steps, ..scenario }
}

/// Makes the processor one with these properties.
pub fn like(boot: &mut Boot, properties: &str) -> Result<()> {
    boot.cpu.push_str(properties);
    Ok(())
}

/// One that needs nothing gets nothing, and nothing is said.
fn needless_on_pc(scenario: Scenario) -> Scenario {
    let quiet = |record: &Record| match record.text.contains(SAID) {
        true => Err("something is done on exits of a CPU that needs nothing".to_owned()),
        false => programs::no_failures(record),
    };
    Scenario { name: "x86_64/mitigations/max".to_owned(), ..scenario }.judge(quiet)
}

/// Rows with one exit and with two: what a guard costs shows as often as there are exits.
const ROWS: [(&str, u64); 2] = [("null-hypercall", 1), ("self-sgi", 1)];
/// Turns of the loop that are measured: those of a Cortex-A57, a Neoverse N1 and a Neoverse V2.
const TURNS: [u64; 3] = [8, 24, 132];

/// Instructions that a guarded vector adds to an exit: three a turn, two to find their number, a barrier and an ISB,
/// and the branch to the unguarded vector.
const fn price(turns: u64) -> u64 {
    3 * turns + 5
}

/// A loop costs what it consists of, and nothing is paid where nothing is done.
pub fn prices(layout: &Layout, qemu: &Qemu) -> Result<()> {
    let off = measure(layout, qemu, &arm64("off"))?;
    let mut found = vec![(0, measure(layout, qemu, &arm64("auto"))?)];
    for turns in TURNS {
        found.push((price(turns), measure(layout, qemu, &arm64(&format!("loop:{turns}")))?));
    }
    judge(&off, &found)
}

/// The rows of PCs with one exit and with two.
const PC_ROWS: [(&str, u64); 2] = [("null-hypercall", 1), ("cpuid", 1)];
/// A combination of guards, and the instructions that it adds to an exit and the entry behind it. IBPB is four, and so is each
/// write of SPEC_CTRL; RDX, which they need, is stored and loaded on an exit, and for the entry; the return stack takes two and
/// four for each pair of calls; what is done on an exit ends with LFENCE and one load.
const PC_PRICES: [(&str, u64); 5] = [
    ("barrier", 4 + 2 + 2),
    ("fill", 2 + 16 * 4 + 2),
    ("clear", 1),
    ("switch", 4 + 2 + 4 + 2 + 2),
    ("barrier+fill+clear+switch", 4 + (2 + 16 * 4) + 1 + (4 + 2 + 4 + 2) + 2),
];

/// Guards cost what they consist of on a CPU that has it all, and a CPU that needs nothing pays nothing.
pub fn prices_of_pcs(layout: &Layout, qemu: &Qemu) -> Result<()> {
    let pc = |cpu, mitigations: &str| Measured { isa: Isa::X86_64, cpu, mitigations: mitigations.to_owned() };
    let off = measure(layout, qemu, &pc("", "off"))?;
    let mut found = vec![(0, measure(layout, qemu, &pc("", "auto"))?)];
    for (guards, price) in PC_PRICES {
        found.push((price, measure(layout, qemu, &pc(SWITCHING, guards))?));
    }
    judge(&off, &found)
}

/// Holds what each price and its figures say to the figures without.
fn judge(off: &[Figure], found: &[(u64, Vec<Figure>)]) -> Result<()> {
    for (price, figures) in found {
        for ((figure, row, exits), (base, ..)) in figures.iter().zip(off) {
            let expected = base + (price * exits) as f64;
            if *figure != expected {
                let what =
                    format!("{row} takes {figure} instructions, not {expected} ({base} and {price} more)");
                return Err(Failure::failed(what));
            }
        }
    }
    Ok(())
}

/// A row's instructions, its name, and how many exits it has.
type Figure = (f64, &'static str, u64);

/// What is measured.
struct Measured {
    isa: Isa,
    cpu: &'static str,
    mitigations: String,
}

fn arm64(mitigations: &str) -> Measured {
    Measured { isa: Isa::Arm64, cpu: "", mitigations: mitigations.to_owned() }
}

/// The rows' instructions with these mitigations, and how many exits each has.
fn measure(layout: &Layout, qemu: &Qemu, measured: &Measured) -> Result<Vec<Figure>> {
    let chosen = if measured.isa == Isa::Arm64 { ROWS } else { PC_ROWS };
    let rows: Vec<String> = chosen.iter().map(|(row, _)| (*row).to_owned()).collect();
    let selection = Selection::own(measured.isa, &rows)?;
    let mitigations = Some(measured.mitigations.clone());
    let variant = Variant { mitigations, cpu: measured.cpu, ..selection.variant };
    let selection = Selection { variant, iterations: FEWEST, ..selection };
    let Assembled { document, failures } = assemble::measure(layout, qemu, &selection)?;
    match failures.into_iter().next() {
        Some(failure) => Err(failure),
        None => chosen.iter().map(|(row, exits)| Ok((figure(&document, row)?, *row, *exits))).collect(),
    }
}

pub(super) fn figure(document: &Document, row: &str) -> Result<f64> {
    let own = document.rows.iter().find(|figure| figure.row == row && !figure.recorded);
    let missing = || Failure::failed(format!("{row} was not measured"));
    own.and_then(|figure| figure.instructions).ok_or_else(missing)
}
