// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `figures`: writes what rows cost into the documentation, from the budgets and the recorded figures.
//!
//! | in a mark | is |
//! |---|---|
//! | `arm64 null-hypercall` | Turnstile's instructions on the usual platform of the architecture |
//! | `max-gicv2 self-sgi` | the same on a platform of `bench/budgets.toml` |
//! | `kvm-vhe null-hypercall` | the recorded instructions of another subject |
//! | `arm64 vcpu-switch.hardware_reads` | operations of another class |
//! | `kvm-vhe packet.long-turns` | the same where QEMU alone ends the turns of the emulated CPUs |
//! | `A - B`, `A + 77` | differences and sums of these and of numbers |
//! | `table arm64` | the table that `./x bench` prints |
//! | `footprint arm64` | the lines and pages that rows touch |
//! | `arm64/fp-resident null-hypercall` | what a row costs without a technique, `none` or `all` |
//! | `ablation arm64`, `seeds arm64` | what techniques are worth, and what the seeds say beside it |

mod marks;

use std::fs;
use std::path::{Path, PathBuf};

use turnstile::bench::known::Known;
use turnstile::failure::{Context, Failure, Result};
use turnstile::isa::Isa;
use turnstile::layout::{Layout, write_atomically};

use super::cli;

/// The documents at the root that have figures; those in `docs/src` are found. Decisions keep those of their time.
const AT_ROOT: [&str; 5] = ["README.md", "SPECIFICATION.md", "CAVEATS.md", "CHANGELOG.md", "ARCHITECTURE.md"];
/// What puts things right.
const HELP: &str = "./x figures --write";

/// Says which figures in the documentation are not those of the budgets, or puts them right.
pub fn figures(layout: &Layout, options: &cli::Figures) -> Result<()> {
    let known = Known::load(layout)?;
    let mut stale = Vec::new();
    for file in documents(layout)? {
        let text = fs::read_to_string(&file).context(|| format!("cannot read {}", file.display()))?;
        let shown = shown(layout, &file);
        let failed = |what: String| Failure::failed(format!("{shown}: {what}"));
        let filled = marks::fill(&text, |what| figure(&known, what)).map_err(failed)?;
        if filled != text && options.write {
            write_atomically(&file, filled.as_bytes())?;
        }
        stale.extend(
            differences(&text, &filled).map_err(failed)?.into_iter().map(|what| format!("{shown}: {what}")),
        );
    }
    stale.iter().for_each(|line| println!("{line}"));
    match stale.is_empty() || options.write {
        true => Ok(()),
        false => Err(Failure::failed("the documentation has other figures than the budgets").help(HELP)),
    }
}

/// The documents that may have marks.
fn documents(layout: &Layout) -> Result<Vec<PathBuf>> {
    let book = layout.root().join("docs/src");
    let entries = fs::read_dir(&book).context(|| format!("cannot read {}", book.display()))?;
    let pages = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let mut pages: Vec<PathBuf> =
        pages.filter(|path| path.extension().is_some_and(|end| end == "md")).collect();
    pages.sort();
    let at_root = AT_ROOT.iter().map(|name| layout.root().join(name));
    Ok(at_root.chain(pages).collect())
}

fn shown(layout: &Layout, file: &Path) -> String {
    file.strip_prefix(layout.root()).unwrap_or(file).display().to_string()
}

/// What belongs into a marked place.
fn figure(known: &Known, what: &str) -> std::result::Result<String, String> {
    let isa = |name: &str| {
        let found = Isa::ALL.into_iter().find(|isa| isa.name() == name);
        found.ok_or_else(|| format!("`{what}`: `{name}` is no architecture"))
    };
    if let Some(name) = what.strip_prefix("table ") {
        let table = known.table(isa(name)?).map_err(|failure| failure.to_string())?;
        return Ok(format!("\n```\n{table}```\n"));
    }
    if let Some(name) = what.strip_prefix("footprint ") {
        let table = known.footprint(isa(name)?).map_err(|failure| failure.to_string())?;
        return Ok(format!("\n\n{table}\n"));
    }
    if let Some(name) = what.strip_prefix("ablation ") {
        let table = known.ablation(isa(name)?).ok_or_else(|| format!("`{what}`: nothing is recorded"))?;
        return Ok(format!("\n\n{table}\n"));
    }
    if let Some(name) = what.strip_prefix("seeds ") {
        let table = known.seeds(isa(name)?).ok_or_else(|| format!("`{what}`: nothing is recorded"))?;
        return Ok(format!("\n\n{table}\n"));
    }
    let result = sum(known, what)?;
    Ok(if result.fract() == 0.0 { format!("{result:.0}") } else { format!("{result:.2}") })
}

/// Adds up counts and numbers with `+` and `-` between them.
fn sum(known: &Known, what: &str) -> std::result::Result<f64, String> {
    let mut result = 0.0;
    for added in what.split(" + ") {
        for (index, term) in added.split(" - ").enumerate() {
            let sign = if index == 0 { 1.0 } else { -1.0 };
            result += sign * count(known, term)?;
        }
    }
    Ok(result)
}

/// A number, or the count that `OF ROW` or `OF ROW.CLASS` names.
fn count(known: &Known, term: &str) -> std::result::Result<f64, String> {
    if let Ok(number) = term.trim().parse() {
        return Ok(number);
    }
    let (of, row) = term.trim().split_once(' ').ok_or_else(|| format!("`{term}`: who, and which row?"))?;
    // Subjects have dots in their names, rows have none.
    let (row, class) = row.split_once('.').unwrap_or((row, "instructions"));
    known
        .count(of, row, class)
        .ok_or_else(|| format!("`{term}` is in neither the budgets nor the recorded figures"))
}

/// What a document says in its marked places, and what belongs there.
fn differences(text: &str, filled: &str) -> std::result::Result<Vec<String>, String> {
    let (old, new) = (marks::find(text)?, marks::find(filled)?);
    let changed = old.iter().zip(&new).filter_map(|(old, new)| {
        let (before, after) = (text.get(old.place.clone())?, filled.get(new.place.clone())?);
        let difference = if after.contains('\n') { String::new() } else { format!(": {before} is {after}") };
        (before != after).then(|| format!("{}{difference}", old.what))
    });
    Ok(changed.collect())
}

#[cfg(test)]
mod tests;
