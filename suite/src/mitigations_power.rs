// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mitigations on POWER: what is done is said, guests work as ever, and it costs what the guards consist of. What a machine gets by
//! its firmware is in `features_power`.

use std::path::Path;

use turnstile::bench::assemble::{self, Assembled};
use turnstile::bench::rows::FEWEST;
use turnstile::bench::selection::Selection;
use turnstile::bench::subjects::Variant;
use turnstile::failure::{Failure, Result};
use turnstile::isa::Isa;
use turnstile::layout::Layout;
use turnstile::qemu::Boot;
use turnstile::setup::qemu::Qemu;

use super::mitigations::figure;
use super::programs;
use super::scenario::{Record, Scenario, Step};

/// The architecture of this topic.
const ISA: Isa = Isa::Power64;
const MEMORY: &str = "64MiB";
/// What the hypervisor says where it does something.
const SAID: &str = "each exit flushes";
const ASSISTED: &str = "each exit flushes link stack and count cache (bcctr 2,0,0), each entry the data cache (ori 30,30,0), \
                        with barriers on both and behind bounds checks";
const SOFTWARE: &str = "each exit flushes link stack and count cache (branches), each entry the data cache (loads), \
                        with barriers on both and behind bounds checks";
/// With a device in memory, whose accesses show that other exits than calls keep all registers.
const UART: &str = "vcpus = 2\ncmdline = \"uart=0x10000000000\"";
/// What guests are told on an emulator.
const NEEDLESS: &str = "@characteristics 0x4000000000000000 0x81c0000000000000";

/// The scenarios of this topic.
pub fn scenarios() -> Vec<Scenario> {
    vec![
        forced("assisted", ASSISTED, programs::selftest(ISA, "", MEMORY, UART)),
        // With statistics: their exits end in the image, from which the vectors are copied.
        forced(
            "software",
            SOFTWARE,
            programs::selftest(ISA, "", MEMORY, &format!("{UART}\nstatistics = true")),
        ),
        needless(),
    ]
}

/// Everything is done, needed or not, and no register of a guest is lost over it.
fn forced(choice: &'static str, sentence: &'static str, scenario: Scenario) -> Scenario {
    let mut steps = vec![Step::Text(sentence)];
    steps.extend(scenario.steps);
    Scenario { name: format!("power64/mitigations/{choice}"), steps, ..scenario }.prepare(match choice {
        "assisted" => |boot: &mut Boot, _: &Path| append(boot, "assisted"),
        _ => |boot: &mut Boot, _: &Path| append(boot, "software"),
    })
}

fn append(boot: &mut Boot, choice: &str) -> Result<()> {
    boot.append.push_str(&format!(" mitigations={choice}"));
    Ok(())
}

/// A machine that needs nothing gets nothing, and guests are told so.
fn needless() -> Scenario {
    let scenario = programs::selftest(ISA, "", MEMORY, "cmdline = \"test=calls\"");
    Scenario { name: "power64/mitigations/needless".to_owned(), ..scenario }.judge(|record: &Record| {
        match (record.text.contains(SAID), record.console(0).contains(NEEDLESS)) {
            (true, _) => Err("something is done on a machine that needs nothing".to_owned()),
            (_, false) => Err(format!("the guest was not told {NEEDLESS}")),
            _ => programs::no_failures(record),
        }
    })
}

/// Rows whose operation is one exit: a call, and another one.
const ROWS: [&str; 2] = ["null-hypercall", "facility-fault"];
/// Instructions of what is done before a return: by ORI behind its barrier; or by loads, eight of 64 times each, with two for
/// the loop and 17 around. Each with the barrier between stores and loads, and the branch to the guard.
const RETURNS: [u64; 2] = [2 + 2, 2 + 17 + 64 * (8 + 2)];
/// Those of an exit: the branches to the guard and back, the barrier, the link stack, and the count cache: three, or two and
/// eight for each branch.
const EXITS: [u64; 2] = [3 + 64 + 3, 3 + 64 + 2 + 278 * 8];
/// What a call adds: the barrier behind the check of its number, and the branches there and back.
const CHECKED: u64 = 3;
/// What another exit adds, which keeps LR and CTR.
const KEPT: u64 = 8;
/// What aligns the branches that fill the count cache, in a call's guard and in another one's.
const ALIGNMENT: [u64; 2] = [5, 0];

/// Each choice costs what it consists of, and nothing is paid where nothing is done.
pub fn prices(layout: &Layout, qemu: &Qemu) -> Result<()> {
    let off = measure(layout, qemu, "off")?;
    for (choice, prices) in [
        ("auto", [0, 0]),
        ("assisted", [EXITS[0] + CHECKED + RETURNS[0], EXITS[0] + KEPT + RETURNS[0]]),
        (
            "software",
            [EXITS[1] + ALIGNMENT[0] + CHECKED + RETURNS[1], EXITS[1] + ALIGNMENT[1] + KEPT + RETURNS[1]],
        ),
    ] {
        let figures = measure(layout, qemu, choice)?;
        for (((figure, base), price), row) in figures.iter().zip(&off).zip(prices).zip(ROWS) {
            let expected = base + price as f64;
            if *figure != expected {
                let what = format!(
                    "{row} takes {figure} instructions with mitigations={choice}, not {expected} ({base} and {price} more)"
                );
                return Err(Failure::failed(what));
            }
        }
    }
    Ok(())
}

/// The rows' instructions with these mitigations.
fn measure(layout: &Layout, qemu: &Qemu, mitigations: &str) -> Result<Vec<f64>> {
    let selection = Selection::own(ISA, &ROWS.map(str::to_owned))?;
    let variant = Variant { mitigations: Some(mitigations.to_owned()), ..selection.variant };
    let selection = Selection { variant, iterations: FEWEST, ..selection };
    let Assembled { document, failures } = assemble::measure(layout, qemu, &selection)?;
    match failures.into_iter().next() {
        Some(failure) => Err(failure),
        None => ROWS.iter().map(|row| figure(&document, row)).collect(),
    }
}
