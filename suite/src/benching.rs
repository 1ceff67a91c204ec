// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Turnstile's rows: within their budgets, and the same in every run.

use turnstile::bench::assemble::{self, Assembled};
use turnstile::bench::budgets;
use turnstile::bench::document::{Document, Host, Trace};
use turnstile::bench::platform::Platform;
use turnstile::bench::rows::{self, Counted, FEWEST, ITERATIONS};
use turnstile::bench::selection::Selection;
use turnstile::bench::subjects::Variant;
use turnstile::failure::{Failure, Result};
use turnstile::isa::Isa;
use turnstile::layout::Layout;
use turnstile::setup::qemu::Qemu;

/// Rows that two runs are made of: one with one kind of exit, one with two, one with a trapped register.
const REPEATED: [&str; 3] = ["null-hypercall", "sysreg-trap", "self-sgi"];

/// Rows that every platform of an architecture has, and that say most about it.
const fn key_rows(isa: Isa) -> &'static [&'static str] {
    match isa {
        Isa::Arm64 => &["null-hypercall", "self-sgi", "virtual-ipi", "sgi-to-3-of-4"],
        Isa::X86_64 => &[
            "null-hypercall",
            "cpuid",
            "io-apic",
            "x2apic-self-ipi-eoi",
            "x2apic-self-ipi-pv-eoi",
            "ipi-halted",
        ],
        Isa::Power64 => &["null-hypercall", "prod-cede", "self-ipi-xics", "mmio-store", "ipi-ceded"],
    }
}

/// What the names of functions that handle exits have in them: those that the run loops call, and those behind tables.
const HANDLERS: [&str; 7] = [
    "turnstile_light_",
    "turnstile_full_",
    "turnstile_nested_page_fault",
    "turnstile_x86_64::exit::",
    "turnstile_power64::",
    // Ways into services.
    "turnstile_service_",
    // A hypercall that is none has no other.
    "call_far",
];

/// Rows whose service copies bytes of guests: how many, and in how many pieces at most.
const COPIED: [(&str, f64, f64); 3] =
    // The first bytes of a packet are read, and written. A segment is in three pieces here; there it is in 16 buffers, which lie behind
    // each other and are one piece mostly.
    [("disk-read", 4096.0, 1.0), ("packet-1500", 1514.0, 3.0), ("segment", 65226.0, 6.0)];

/// The most instructions with which 64 bytes are copied, and those of each piece besides: what is no block of 64 bytes, and the call.
/// On POWER, services have vector registers for what is long, and no other instruction moves more than a word.
fn most_of_copy(isa: Isa, bytes: f64) -> (f64, f64) {
    match isa {
        Isa::Arm64 | Isa::X86_64 => (8.0, 56.0),
        Isa::Power64 => (if bytes < LONG { 16.0 } else { 8.0 }, 72.0),
    }
}

/// From so many bytes on a copy is done with vector registers on POWER.
const LONG: f64 = 3072.0;

/// As many rows that are dearer than they may be are measured once more. QEMU's clock goes on by itself while all CPUs are idle, and beside other work it
/// may do so at another moment: then CPUs that wait for each other meet in another order. A path that has become dearer is so twice.
const MEASURED_AGAIN: usize = 3;

/// Whether a row's operation makes no exit: its figure is all that it takes.
fn is_without_exit(isa: Isa, name: &str) -> bool {
    rows::of(isa).iter().any(|row| row.name == name && row.counted == Counted::InAll)
}

/// Measures all rows, and compares them with the budgets.
pub fn budgets(layout: &Layout, qemu: &Qemu, isa: Isa) -> Result<()> {
    within(layout, qemu, &[], false, usual(isa, Variant::default()))
}

/// The same of the most important rows with statistics of the VM's exits, which have their price.
pub fn statistics(layout: &Layout, qemu: &Qemu, isa: Isa) -> Result<()> {
    within(layout, qemu, key_rows(isa), true, usual(isa, Variant::statistics()))
}

/// The same of all rows.
pub fn all_statistics(layout: &Layout, qemu: &Qemu, isa: Isa) -> Result<()> {
    within(layout, qemu, &[], true, usual(isa, Variant::statistics()))
}

fn usual(isa: Isa, variant: Variant) -> Variant {
    Variant { platform: Platform::usual_of(isa), ..variant }
}

/// The platforms that differ most from the usual one: without VHE, with the other interrupt controller, the other board.
const DIFFERENT: [&str; 5] = ["max-gicv3-nvhe", "max-gicv2", "raspi4b", "q35-max-xapic", "powernv10"];

/// Compares the most important rows on the platforms that differ most with the budgets there.
pub fn matrix(layout: &Layout, qemu: &Qemu, isa: Isa) -> Result<()> {
    elsewhere(layout, qemu, isa, |platform| DIFFERENT.contains(&platform.name))
}

/// The same on every platform.
pub fn platforms(layout: &Layout, qemu: &Qemu, isa: Isa) -> Result<()> {
    elsewhere(layout, qemu, isa, |_| true)
}

fn elsewhere(layout: &Layout, qemu: &Qemu, isa: Isa, wanted: fn(&Platform) -> bool) -> Result<()> {
    let rows: Vec<String> = key_rows(isa).iter().map(|row| (*row).to_owned()).collect();
    let elsewhere: Vec<&Platform> =
        Platform::of(isa).iter().skip(1).filter(|platform| wanted(platform)).collect();
    let selection =
        Selection { elsewhere: elsewhere.clone(), iterations: FEWEST, ..Selection::own(isa, &rows)? };
    let document = take(layout, qemu, &selection)?;
    let usual = Platform::usual_of(isa);
    let mut all = std::iter::once(usual).chain(elsewhere);
    all.try_for_each(|platform| budgets::check(layout, platform, false, &document))
}

fn within(layout: &Layout, qemu: &Qemu, rows: &[&str], statistics: bool, variant: Variant) -> Result<()> {
    let platform = variant.platform;
    let isa = platform.isa();
    // Lines and pages have budgets without statistics.
    let document =
        take(layout, qemu, &Selection { footprint: !statistics, ..selection(rows, variant.clone())? })?;
    if let Some(figure) = document
        .rows
        .iter()
        .find(|figure| figure.exits.is_some_and(|exits| exits < 1.0) && !is_without_exit(isa, &figure.row))
    {
        return Err(Failure::failed(format!("{} does not exit", figure.row)));
    }
    let unnamed = |trace: &&Trace| trace.folded.iter().any(|part| part.function.starts_with("0x"));
    if let Some(trace) = document.traces.iter().find(unnamed) {
        let what = format!("the trace of {} has code without a name: {:?}", trace.row, trace.folded);
        return Err(Failure::failed(what));
    }
    // A handler's name shows that the code was found where it runs.
    let handled = |trace: &&Trace| {
        let is_handler = |name: &str| HANDLERS.iter().any(|part| name.contains(part));
        trace.folded.iter().any(|part| is_handler(&part.function))
    };
    // Of what takes very long no trace is kept.
    let is_kept = |trace: &&Trace| !is_without_exit(isa, &trace.row) && !trace.folded.is_empty();
    if let Some(trace) = document.traces.iter().filter(is_kept).find(|trace| !handled(trace)) {
        let what = format!("the trace of {} has wrong names: {:?}", trace.row, trace.folded);
        return Err(Failure::failed(what));
    }
    copies(isa, &document)?;
    held(layout, qemu, (statistics, variant), &document)
}

/// Compares rows with the budgets. As many rows as are [measured again](MEASURED_AGAIN) fail if they are dearer then, too.
fn held(
    layout: &Layout,
    qemu: &Qemu,
    (statistics, variant): (bool, Variant),
    document: &Document,
) -> Result<()> {
    let platform = variant.platform;
    let dearer = budgets::dearer(layout, platform, statistics, document)?;
    if dearer.is_empty() || dearer.len() > MEASURED_AGAIN {
        return budgets::check(layout, platform, statistics, document);
    }
    let again = Selection { footprint: !statistics, iterations: ITERATIONS, ..selection(&dearer, variant)? };
    budgets::check(layout, platform, statistics, &take(layout, qemu, &again)?)
}

/// Checks what copies take.
fn copies(isa: Isa, document: &Document) -> Result<()> {
    let mut checked = 0;
    for figure in document.rows.iter().filter(|figure| !figure.recorded) {
        let Some((row, bytes, pieces)) = COPIED.into_iter().find(|(row, ..)| *row == figure.row) else {
            continue;
        };
        let (line, piece) = most_of_copy(isa, bytes);
        let (copy, most) = (figure.classes.get("copy"), line * bytes / 64.0 + piece * pieces);
        if copy.is_none_or(|copy| *copy > most) {
            let what = format!("{row} copies {bytes} bytes in {copy:?} instructions, and may in {most}");
            return Err(Failure::failed(what));
        }
        checked += 1;
    }
    // Of the most important rows none copies.
    match checked {
        0 if document.rows.iter().all(|figure| key_rows(isa).contains(&figure.row.as_str())) => Ok(()),
        _ if checked == COPIED.len() => Ok(()),
        _ => Err(Failure::failed(format!("{checked} of {} rows that copy were measured", COPIED.len()))),
    }
}

/// Measures some rows twice; the files must be the same but for date and host. One run also counts lines and pages, which
/// changes nothing else.
pub fn repeatable(layout: &Layout, qemu: &Qemu) -> Result<()> {
    let once = |footprint| -> Result<String> {
        let selection = Selection { footprint, ..selection(&REPEATED, Variant::default())? };
        let mut document = take(layout, qemu, &selection)?;
        let mut measured = document.rows.iter().filter(|figure| !figure.recorded);
        if let Some(figure) = measured.find(|figure| figure.footprint.is_some() != footprint) {
            return Err(Failure::failed(format!("{}: lines and pages: {:?}", figure.row, figure.footprint)));
        }
        (document.date, document.host) = (String::new(), Host::default());
        document.command = document.command.replace(" --footprint", "");
        document.rows.iter_mut().for_each(|figure| figure.footprint = None);
        document.json()
    };
    let (first, second) = (once(false)?, once(true)?);
    if first == second {
        return Ok(());
    }
    let difference = similar::TextDiff::from_lines(&first, &second);
    let shown = difference.unified_diff().context_radius(3).to_string();
    Err(Failure::failed("two runs differ").details(shown))
}

fn selection(rows: &[impl AsRef<str>], variant: Variant) -> Result<Selection> {
    let rows: Vec<String> = rows.iter().map(|row| row.as_ref().to_owned()).collect();
    let isa = variant.platform.isa();
    // All rows are taken as they were recorded. Some of them again are the same, however often.
    let iterations = if rows.is_empty() { ITERATIONS } else { FEWEST };
    Ok(Selection { trace: true, iterations, variant, ..Selection::own(isa, &rows)? })
}

fn take(layout: &Layout, qemu: &Qemu, selection: &Selection) -> Result<Document> {
    let Assembled { document, failures } = assemble::measure(layout, qemu, selection)?;
    match failures.into_iter().next() {
        Some(failure) => Err(failure),
        None => Ok(document),
    }
}
