// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An ablation as text.

use turnstile_techniques::Set;

use super::super::document::{Ablation, SeedRow};
use super::super::operations::hardware_of_classes;
use super::super::table::count;
use super::{added, find, idle, seeds as own_seeds};
use crate::sheet::{Column, Sheet};

/// What is off down, rows across. The first line is what rows cost with nothing off, the others what they cost more.
pub fn sheet(ablation: &Ablation) -> Sheet {
    let rows = row_names(ablation);
    let (none, all) = (Set::NONE.to_string(), Set::ALL.to_string());
    let columns = rows.iter().copied().map(Column::number);
    let mut sheet = Sheet::new([Column::key("without")].into_iter().chain(columns));
    let absolute = |off: &str| -> Vec<String> {
        let cell = |row: &&str| match find(&ablation.rows, row, off) {
            Some(figure) => {
                format!("{} ({})", count(figure.instructions), count(hardware_of_classes(&figure.classes)))
            }
            None => "failed".to_owned(),
        };
        [off.to_owned()].into_iter().chain(rows.iter().map(cell)).collect()
    };
    sheet.add(absolute(&none));
    for technique in &ablation.techniques {
        let cell = |row: &&str| match added(&ablation.rows, row, &technique.name) {
            Some((instructions, operations)) => difference(instructions, operations),
            None => "failed".to_owned(),
        };
        let name = format!("{} [{}]", technique.name, technique.seed);
        sheet.add([name].into_iter().chain(rows.iter().map(cell)));
    }
    if ablation.rows.iter().any(|figure| figure.off == all) {
        sheet.add(absolute(&all));
    }
    sheet
}

/// The same in Markdown, for the book.
pub fn markdown(ablation: &Ablation) -> String {
    let rows = row_names(ablation);
    let (none, all) = (Set::NONE.to_string(), Set::ALL.to_string());
    let mut text = "| without |".to_owned();
    text.extend(rows.iter().map(|row| format!(" {row} |")));
    text.push_str(&format!("\n|---|{}\n", "---:|".repeat(rows.len())));
    let mut line = |name: &str, cell: &dyn Fn(&str) -> Option<String>| {
        let cells = rows.iter().map(|row| format!(" {} |", cell(row).unwrap_or_else(|| "–".to_owned())));
        text.push_str(&format!("| {name} |{}\n", cells.collect::<String>()));
    };
    let absolute = |off: &str, row: &str| {
        let figure = find(&ablation.rows, row, off)?;
        Some(format!("{} ({})", count(figure.instructions), count(hardware_of_classes(&figure.classes))))
    };
    line(&format!("`{none}`"), &|row| absolute(&none, row));
    for technique in &ablation.techniques {
        let name = &technique.name;
        let cell = |row: &str| {
            let (instructions, operations) = added(&ablation.rows, row, name)?;
            Some(difference(instructions, operations))
        };
        line(&format!("[`{name}`](#{name})"), &cell);
    }
    line(&format!("`{all}`"), &|row| absolute(&all, row));
    text
}

/// What the seeds say beside what was found here, in Markdown: a line for each of a seed's rows, with its own techniques and
/// with all.
pub fn seeds_markdown(ablation: &Ablation) -> String {
    let mut text =
        "| row | the seed, cycles | here, its techniques | here, all |\n|---|---:|---:|---:|\n".to_owned();
    let percent = |number: f64| format!("{} %", signed(number));
    for own in ablation.seed.iter().filter(|row| row.source.ends_with(own_seeds::OWN)) {
        let (seed, _) = own.source.split_once(':').unwrap_or((&own.source, ""));
        let same = |row: &&SeedRow| {
            row.row == own.row && row.source.starts_with(seed) && row.source.ends_with(own_seeds::EVERY)
        };
        let all = ablation.seed.iter().find(same).map_or("–".to_owned(), |row| percent(row.here_percent));
        let there: Vec<String> = own.seed_percent.iter().map(|number| percent(*number)).collect();
        let (row, there, here) = (&own.row, there.join(", "), percent(own.here_percent));
        text.push_str(&format!("| {row} ({seed}) | {there} | {here} | {all} |\n"));
    }
    text
}

/// Rows in the order in which they were measured.
fn row_names(ablation: &Ablation) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for figure in &ablation.rows {
        if !names.contains(&figure.row.as_str()) {
            names.push(&figure.row);
        }
    }
    names
}

fn difference(instructions: f64, operations: f64) -> String {
    match (instructions == 0.0, operations == 0.0) {
        (true, true) => "·".to_owned(),
        (_, true) => signed(instructions),
        _ => format!("{} ({})", signed(instructions), signed(operations)),
    }
}

fn signed(number: f64) -> String {
    // One decimal is all there is in per cent; counts have none.
    let digits =
        if number.fract() == 0.0 { format!("{:.0}", number.abs()) } else { format!("{:.1}", number.abs()) };
    if number < 0.0 { format!("−{digits}") } else { format!("+{digits}") }
}

/// What the table of the seeds is.
pub const SEEDS: &str = "The seeds' techniques on real machines, and here (a seed is a publication whose ideas Turnstile implements: \
                         docs/src/techniques.md, The seeds)";

/// What the seeds say beside what was found here.
pub fn seeds(ablation: &Ablation) -> Option<Sheet> {
    let numbers = ["the seed, cycles", "here, instructions"].map(Column::number);
    let columns = [Column::key("row")].into_iter().chain(numbers).chain([Column::text("what")]);
    let mut sheet = Sheet::new(columns);
    for row in &ablation.seed {
        let percent = |number: f64| format!("{} %", signed(number));
        let seed: Vec<String> = row.seed_percent.iter().map(|number| percent(*number)).collect();
        let (seed, here) = (seed.join(", "), percent(row.here_percent));
        sheet.add([&row.row, &seed, &here, &row.source]);
    }
    (!ablation.seed.is_empty()).then_some(sheet)
}

/// Says what the table shows.
pub fn notes(ablation: &Ablation) -> String {
    let mut text =
        "What each technique is worth: instructions for one operation with nothing off, and how many more \
                    there are without it. In parentheses hardware operations: registers, devices, barriers, \
                    atomics, exception entries and returns. The first line contains the switches themselves."
            .to_owned();
    let idle = idle(ablation);
    if !idle.is_empty() {
        text.push_str(&format!(
            "\nNo row costs more without {}: no technique in these rows.",
            idle.join(", ")
        ));
    }
    text
}
