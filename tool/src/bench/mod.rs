// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `turnstile bench`: what each exit costs, counted by the meter.
//!
//! | file | what |
//! |---|---|
//! | `selection` | what is to be measured |
//! | `rows` | the operations |
//! | `subjects/` | the hypervisors: how each runs a row |
//! | `runner` | runs in parallel |
//! | `report` | what a guest says of itself |
//! | `measure` | from the meter's reading to figures |
//! | `trace` | what exactly runs |
//! | `ablate/` | what each technique is worth |
//! | `platform` | the machines on which Turnstile is measured |
//! | `recorded` | figures of subjects that are not measured |
//! | `known` | budgets and recorded figures, for the documentation |
//! | `assemble`, `document` | the JSON, from which everything that is shown is made |
//! | `table` | the JSON as text |
//! | `footprint` | lines and pages as text |
//! | `html/` | the JSON as a page |
//! | `matrix` | Turnstile's figures by platform |
//! | `routes` | an SGI by its target, as text |
//! | `work/` | whole work in Linux |
//! | `weights` | a model of cycles |
//! | `budgets` | the most that rows may cost |
//! | `operations` | kinds of hardware operations |
//! | `native` | time and cycles of KVM on this machine itself |

pub mod ablate;
pub mod assemble;
pub mod budgets;
pub mod document;
mod footprint;
mod html;
pub mod known;
mod matrix;
pub(crate) mod measure;
pub mod native;
mod operations;
pub mod platform;
pub mod recorded;
pub mod report;
mod routes;
pub mod rows;
pub mod runner;
#[cfg(test)]
pub(crate) mod samples;
pub mod selection;
pub mod subjects;
pub(crate) mod table;
pub(crate) mod trace;
mod weights;
pub mod work;

use std::path::PathBuf;

use assemble::Assembled;
use document::Document;
use matrix::Matrix;
use platform::Platform;
use rows::ITERATIONS;
use selection::Selection;
use subjects::{Subject, Variant};
use turnstile_mitigation::{arm64, power64, x86_64};
use weights::Weights;

use crate::cli;
use crate::config::problem::list;
use crate::failure::{Failure, Kind, Result};
use crate::isa::Isa;
use crate::layout::{Layout, can_write, write_named};
use crate::meter::fold;
use crate::setup;
use crate::{prose, ui};

/// Measures, or takes what was measured, and shows it.
pub fn bench(layout: &Layout, options: &cli::Bench) -> Result<()> {
    let isas: Vec<Isa> =
        Isa::ALL.into_iter().filter(|isa| [cli::ALL_ISAS, isa.name()].contains(&&*options.isa)).collect();
    let several = isas.len() > 1 || options.from.len() > 1;
    if several && (options.json || options.save.is_some() || options.native) {
        let help = "give one --isa or one --from for --json, --save and --native";
        return Err(Failure::usage("a document is of one architecture").help(help));
    }
    for file in [&options.save, &options.html].into_iter().flatten() {
        can_write(file)?;
    }
    if options.native {
        let selections: Result<Vec<Selection>> = isas.iter().map(|isa| select(*isa, options)).collect();
        return selections?.iter().try_for_each(|selection| native::bench(layout, options, &selection.rows));
    }
    let runs = take(layout, &isas, several, options)?;
    if let Some(file) = &options.html {
        let documents: Vec<&Document> = runs.iter().map(|run| &run.document).collect();
        write_named(file, html::page(&documents)?.as_bytes())?;
        ui::note(&format!("the report is in {}", Layout::shown(file)));
    }
    for Assembled { document, failures } in runs {
        conclude(&document, failures)?;
        compare(layout, options, &document)?;
    }
    if options.check {
        ui::note("every row is within its budgets");
    }
    Ok(())
}

/// Measures each architecture, or takes each saved run; shows it, and saves it.
fn take(layout: &Layout, isas: &[Isa], several: bool, options: &cli::Bench) -> Result<Vec<Assembled>> {
    let weights = options.weights.as_deref().map(Weights::load).transpose()?;
    let finish = |mut run: Assembled| {
        if let Some(weights) = &weights {
            weights.apply(&mut run.document)?;
        }
        if several {
            println!("{}\n", run.document.isa);
        }
        show(&run.document, options)?;
        if let Some(file) = &options.save {
            write_named(file, run.document.json()?.as_bytes())?;
        }
        Ok(run)
    };
    if options.from.is_empty() {
        return isas.iter().map(|isa| finish(measure_one(layout, *isa, options)?)).collect();
    }
    let load = |file: &PathBuf| {
        let document = Document::load(file).map_err(Failure::wrong_choice)?;
        finish(Assembled { document, failures: Vec::new() })
    };
    options.from.iter().map(load).collect()
}

/// Measures one architecture.
fn measure_one(layout: &Layout, isa: Isa, options: &cli::Bench) -> Result<Assembled> {
    let selection = select(isa, options)?;
    let chosen = options.ablate.as_deref().map(ablate::select).transpose()?;
    let qemu = setup::qemu::ensure(layout, isa, options.qemu.program.as_deref())?;
    let mut assembled = assemble::measure(layout, &qemu, &selection)?;
    if let Some(chosen) = chosen {
        assembled.ablate(ablate::measure(layout, &qemu, isa, &selection.rows, chosen)?, chosen);
    }
    Ok(assembled)
}

/// Holds the figures to the budgets, or lowers those, if that was asked for.
fn compare(layout: &Layout, options: &cli::Bench, document: &Document) -> Result<()> {
    let isa = Isa::ALL.into_iter().find(|isa| isa.name() == document.isa).unwrap_or_default();
    if options.check {
        work::hold(isa, &document.work)?;
    }
    if let Some(ablation) = document.ablation.as_ref().filter(|_| options.update_budgets) {
        ablate::recorded::Recorded::load(layout)?.update(layout, isa, ablation)?;
    }
    if document.rows.is_empty() {
        return Ok(());
    }
    for platform in Platform::select(isa, &options.platform) {
        if options.check {
            budgets::check(layout, platform, options.statistics, document)?;
        }
        if options.update_budgets {
            budgets::update(layout, platform, options.statistics, document, options.allow_raise)?;
        }
    }
    Ok(())
}

/// Reads what is to be measured, and refuses what cannot be compared with budgets.
fn select(isa: Isa, options: &cli::Bench) -> Result<Selection> {
    let mut names = options.rows.clone();
    if options.ablate.is_some() && names.is_empty() {
        names.extend(ablate::rows(isa).iter().map(|row| (*row).to_owned()));
    }
    let mut selection = Selection::new(isa, &options.subjects, &names, options.iterations)?;
    let whole = options.rows.is_empty() && options.ablate.as_deref().is_none_or(|names| names == "all");
    if options.update_budgets && options.ablate.is_some() && !whole {
        let help = "leave --rows and the names of techniques out";
        return Err(Failure::usage("what techniques are worth is recorded as a whole").help(help));
    }
    let budgets = options.check || options.update_budgets;
    if budgets && options.iterations != ITERATIONS {
        let what = format!("budgets hold for {ITERATIONS} iterations, not for {}", options.iterations);
        return Err(Failure::usage(what).help("leave --iterations out"));
    }
    if budgets && !selection.subjects.contains(&Subject::Turnstile) {
        let help = "add turnstile to --subjects, or leave --subjects out";
        return Err(Failure::usage("only Turnstile has budgets").help(help));
    }
    selection.trace = options.trace || budgets;
    selection.footprint = options.footprint || budgets;
    selection.apart = options.classes;
    if options.statistics {
        selection.variant.vm = Variant::statistics().vm;
    }
    selection.variant.turn = options.turn;
    selection.variant.mitigations =
        options.mitigations.as_deref().map(|value| mitigations(isa, value)).transpose()?;
    if options.mitigations.is_some() && selection.subjects != [Subject::Turnstile] {
        return Err(Failure::usage("only Turnstile's mitigations can be chosen").help("leave --subjects out"));
    }
    let platforms = Platform::select(isa, &options.platform);
    if platforms.is_empty() {
        let names: Vec<&str> = Platform::of(isa).iter().map(|platform| platform.name).collect();
        let what = format!("{} is no platform of {isa}", options.platform.join(", "));
        return Err(Failure::usage(what).help(format!("there are {}", list(&names))));
    }
    if let Some((&first, others)) = platforms.split_first() {
        if first != Platform::usual_of(isa) && selection.subjects != [Subject::Turnstile] {
            let what = format!("on {} Turnstile alone is measured", first.name);
            return Err(Failure::usage(what).help("leave --subjects out"));
        }
        selection.variant.platform = first;
        selection.elsewhere = others.to_vec();
    }
    if selection.is_empty() {
        let names: Vec<&str> = platforms.iter().map(|platform| platform.name).collect();
        return Err(Failure::usage(format!("{} has too few CPUs for these rows", names.join(", "))));
    }
    Ok(selection)
}

/// Checks what the hypervisor is told of mitigations.
fn mitigations(isa: Isa, value: &str) -> Result<String> {
    let word = format!("mitigations={value}");
    let (is_choice, choices) = match isa {
        Isa::Arm64 => (
            arm64::Choice::from_word(&word).is_some(),
            "auto, off, firmware, or loop:K with K from 1 to 1024",
        ),
        Isa::X86_64 => (
            x86_64::Choice::from_word(&word).is_some(),
            "auto, off, or some of barrier, fill, clear and switch with + between them",
        ),
        Isa::Power64 => (power64::Choice::from_word(&word).is_some(), "auto, off, assisted, or software"),
    };
    match is_choice {
        true => Ok(value.to_owned()),
        false => Err(Failure::usage(format!("`{value}` is no choice of mitigations")).help(choices)),
    }
}

/// Writes what was asked for to standard output.
fn show(document: &Document, options: &cli::Bench) -> Result<()> {
    if options.json {
        println!("{}", document.json()?.trim_end());
        return Ok(());
    }
    print(document);
    if options.classes {
        print_classes(document);
    }
    if let Some(ablation) = &document.ablation {
        print_ablation(ablation);
    }
    if options.trace {
        for trace in &document.traces {
            let info = document.subjects.iter().find(|info| info.subject == trace.subject);
            let title = info.map_or(&trace.subject, |info| &info.title);
            fold::print(&format!("{} on {title}", trace.row), &trace.folded, &trace.steps);
        }
    }
    Ok(())
}

/// Prints what the numbers are, and the table.
pub fn print(document: &Document) {
    let width = ui::terminal_width();
    if let Some(work) = work::text(document, width) {
        println!("{work}\n");
    }
    if document.rows.is_empty() {
        return;
    }
    println!("{}\n", table::preface(document, prose::within(width)));
    println!("{}", table::table(document, width));
    let left_out = table::left_out(document, width);
    if !left_out.is_empty() {
        ui::say(&format!("Without a place in this width: {}.", left_out.join(", ")));
    }
    if let Some(touched) = footprint::sheet(document) {
        ui::say(footprint::TITLE);
        println!("{}", touched.show(width));
    }
    if let Some(matrix) = Matrix::new(document) {
        println!("Turnstile by platform\n{}", matrix.sheet().show(width));
    }
    if let Some(chart) = routes::chart(document, prose::within(width)) {
        println!("{chart}\n");
    }
    ui::say(&table::legend(document));
}

fn print_classes(document: &Document) {
    for info in &document.subjects {
        let tables = table::classes(document, info, ui::terminal_width());
        if !tables.is_empty() {
            println!("");
            ui::say(&format!("{} ({}): operations by class", info.title, info.version));
        }
        for table in tables {
            println!("{table}");
        }
    }
}

fn print_ablation(ablation: &document::Ablation) {
    let width = ui::terminal_width();
    println!("");
    ui::say(&ablate::notes(ablation));
    println!("\n{}", ablate::sheet(ablation).show(width));
    if let Some(sheet) = ablate::seed_sheet(ablation) {
        println!("");
        ui::say(ablate::SEEDS);
        println!("{}", sheet.show(width));
    }
}

/// Tells what could not be measured, after everything else has come out.
fn conclude(document: &Document, failures: Vec<Failure>) -> Result<()> {
    for failure in &failures {
        failure.print();
    }
    let figures = document.rows.iter().chain(&document.elsewhere);
    let work = document.work.iter().filter(|figure| !figure.recorded).count();
    let measured = figures.filter(|figure| !figure.recorded).count() + work;
    match failures.len() {
        0 => Ok(()),
        _ if measured == 1 => Err(Failure::reported(Kind::Failed)),
        failed => Err(Failure::failed(format!("{failed} of {measured} figures could not be measured"))),
    }
}
