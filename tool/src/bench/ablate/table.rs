// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An ablation as text.

use comfy_table::{Cell, Table};
use turnstile_techniques::Set;

use super::super::document::Ablation;
use super::super::operations::hardware_of_classes;
use super::super::table::{count, right};
use super::{added, find, idle};
use crate::ui;

/// What is off down, rows across. The first line is what rows cost with nothing off, the others what they cost more.
pub fn table(ablation: &Ablation, width: Option<u16>) -> Table {
    let rows = row_names(ablation);
    let (none, all) = (Set::NONE.to_string(), Set::ALL.to_string());
    let mut table = ui::table(width);
    table.set_header(["without"].into_iter().chain(rows.iter().copied()));
    let absolute = |off: &str| -> Vec<Cell> {
        let cell = |row: &&str| match find(&ablation.rows, row, off) {
            Some(figure) => {
                format!("{} ({})", count(figure.instructions), count(hardware_of_classes(&figure.classes)))
            }
            None => "failed".to_owned(),
        };
        rows.iter().map(|row| right(&cell(row))).collect()
    };
    table.add_row([Cell::new(&none)].into_iter().chain(absolute(&none)));
    for technique in &ablation.techniques {
        let cell = |row: &&str| match added(&ablation.rows, row, &technique.name) {
            Some((instructions, operations)) => difference(instructions, operations),
            None => "failed".to_owned(),
        };
        let name = format!("{} [{}]", technique.name, technique.seed);
        table.add_row([Cell::new(name)].into_iter().chain(rows.iter().map(|row| right(&cell(row)))));
    }
    if ablation.rows.iter().any(|figure| figure.off == all) {
        table.add_row([Cell::new(&all)].into_iter().chain(absolute(&all)));
    }
    table
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

/// What the seeds say beside what was found here.
pub fn seeds(ablation: &Ablation, width: Option<u16>) -> Option<Table> {
    let mut table = ui::table(width);
    table.set_header(["row", "the seed, cycles", "here, instructions", "what"]);
    for row in &ablation.seed {
        let percent = |number: f64| format!("{} %", signed(number));
        let seed: Vec<String> = row.seed_percent.iter().map(|number| percent(*number)).collect();
        let (seed, here) = (seed.join(", "), percent(row.here_percent));
        table.add_row([Cell::new(&row.row), right(&seed), right(&here), Cell::new(&row.source)]);
    }
    (!ablation.seed.is_empty()).then_some(table)
}

/// Says what the table shows.
pub fn notes(ablation: &Ablation) -> String {
    let mut text =
        "What each technique is worth: instructions for one operation with nothing off, and how many more \
                    there are without\nit. In parentheses hardware operations: registers, devices, barriers, \
                    atomics, exception entries and returns.\nThe first line contains the switches themselves."
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
