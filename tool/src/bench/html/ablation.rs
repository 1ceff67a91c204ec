// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What each technique is worth: the rows with it switched off, and the seeds' own percentages.

use super::number;
use crate::bench::document::{Ablation, AblationRow, SeedRow, Technique};
use crate::bench::operations::hardware_of_classes;

/// The table.
pub struct Table<'d> {
    /// The columns.
    pub rows: Vec<&'d str>,
    /// The lines: nothing off, each technique off, all off.
    pub lines: Vec<Line<'d>>,
    /// The techniques.
    pub techniques: &'d [Technique],
    /// The seeds' percentages and ours.
    pub seeds: Vec<Seed<'d>>,
}

/// What is switched off, and what that costs.
pub struct Line<'d> {
    /// What is switched off.
    pub off: &'d str,
    /// What stands in the first column.
    pub title: String,
    /// One cell for each row.
    pub cells: Vec<Option<Cell>>,
}

/// A row with something switched off.
pub struct Cell {
    /// Its instructions.
    pub instructions: String,
    /// The same, or how many more than with everything on where one technique is off.
    pub shown: String,
    /// The hardware operations, or how many more.
    pub hardware: String,
    /// Whether it makes no difference.
    pub nothing: bool,
    /// From 0 to 1: how much more, for the shade.
    pub heat: String,
}

/// The change by the techniques, in a seed and here.
pub struct Seed<'d> {
    /// What the document says.
    pub row: &'d SeedRow,
    /// The seed's changes.
    pub there: Vec<String>,
    /// Ours.
    pub here: String,
    /// Where the seed's changes are on an axis from −100 % to +25 %.
    pub places: Vec<String>,
    /// Where ours is.
    pub place: String,
}

impl<'d> Table<'d> {
    /// Takes the ablation apart.
    pub fn new(ablation: &'d Ablation) -> Self {
        let mut rows: Vec<&str> = Vec::new();
        let mut lines: Vec<&str> = vec!["none"];
        lines.extend(ablation.techniques.iter().map(|technique| technique.name.as_str()));
        for row in &ablation.rows {
            if !rows.contains(&row.row.as_str()) {
                rows.push(&row.row);
            }
            if !lines.contains(&row.off.as_str()) {
                lines.push(&row.off);
            }
        }
        let lines = lines.into_iter().map(|off| {
            let cells = rows.iter().map(|row| cell(ablation, row, off));
            let title = match off {
                "none" => "everything on".to_owned(),
                "all" => "all of them off".to_owned(),
                name => format!("without {name}"),
            };
            Line { off, title, cells: cells.collect() }
        });
        let lines: Vec<Line> = lines.filter(|line| line.cells.iter().any(Option::is_some)).collect();
        let seeds = ablation.seed.iter().map(seed).collect();
        Table { lines, rows, techniques: &ablation.techniques, seeds }
    }
}

fn find<'d>(ablation: &'d Ablation, row: &str, off: &str) -> Option<&'d AblationRow> {
    ablation.rows.iter().find(|found| found.row == row && found.off == off)
}

fn cell(ablation: &Ablation, row: &str, off: &str) -> Option<Cell> {
    let found = find(ablation, row, off)?;
    let operations = |row: &AblationRow| hardware_of_classes(&row.classes);
    let base = find(ablation, row, "none").filter(|_| off != "none");
    let instructions = number::count(found.instructions);
    let Some(base) = base else {
        let hardware = number::count(operations(found));
        let shown = instructions.clone();
        return Some(Cell { instructions, shown, hardware, nothing: false, heat: "0".to_owned() });
    };
    let (more, more_hardware) =
        (found.instructions - base.instructions, operations(found) - operations(base));
    // Twice the instructions is half the shade, and nothing is darker than all of it.
    let heat = if more > 0.0 { more / (more + base.instructions) } else { 0.0 };
    Some(Cell {
        shown: if off == "all" { instructions.clone() } else { number::difference(more) },
        instructions,
        hardware: number::difference(more_hardware),
        nothing: more == 0.0 && more_hardware == 0.0,
        heat: format!("{heat:.2}"),
    })
}

fn seed(row: &SeedRow) -> Seed<'_> {
    let place = |percent: f64| number::length(((100.0 + percent) / 1.25).clamp(0.0, 100.0));
    Seed {
        row,
        there: row.seed_percent.iter().map(|percent| number::percent(*percent)).collect(),
        here: number::percent(row.here_percent),
        places: row.seed_percent.iter().map(|percent| place(*percent)).collect(),
        place: place(row.here_percent),
    }
}
