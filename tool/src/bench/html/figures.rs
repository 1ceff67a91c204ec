// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rows side by side: bars on a logarithmic axis, the figures, and their ratios.

use super::number;
use super::scale::{Logarithmic, Tick};
use super::series::Series;
use crate::bench::document::{Document, Figure};
use crate::bench::{routes, rows};

/// The row that the tiles at the top show, where it is there.
const HEADLINE: &str = "null-hypercall";
/// An error is a sentence; what is longer comes from a guest gone wrong.
const LONGEST_ERROR: usize = 600;

/// All rows, each with one cell per subject.
pub struct Figures<'d> {
    /// The subjects.
    pub series: Vec<Series<'d>>,
    /// The rows.
    pub groups: Vec<Group<'d>>,
    /// The grid.
    pub ticks: Vec<Tick>,
}

/// A row.
pub struct Group<'d> {
    /// Its name.
    pub row: &'d str,
    /// What one operation is.
    pub what: &'d str,
    /// The subjects.
    pub cells: Vec<Cell<'d>>,
    /// Whether it belongs to the curve of SGI targets, which shows it better than bars do.
    pub curve: bool,
}

/// A subject in a row.
pub struct Cell<'d> {
    /// The subject.
    pub series: Series<'d>,
    /// What the document says.
    pub figure: Option<&'d Figure>,
    /// How many times the reference's figure it is.
    ratio: Option<f64>,
    place: f64,
}

impl<'d> Figures<'d> {
    /// Takes the document apart.
    pub fn new(document: &'d Document) -> Self {
        let series = Series::all(document);
        let known = document.rows.iter().filter(|figure| routes::target(&figure.row).is_none());
        let scale = Logarithmic::around(known.filter_map(|figure| figure.instructions));
        let groups = document.row_names().into_iter().map(|(row, what)| {
            let reference = series.iter().find(|series| series.reference);
            let base = reference.and_then(|series| document.figure(&series.info.subject, row)?.instructions);
            let base = base.filter(|_| rows::is_alike(row));
            let cells = series.iter().map(|series| {
                let figure = document.figure(&series.info.subject, row);
                let instructions = figure.and_then(|figure| figure.instructions);
                let ratio = match (instructions, base) {
                    (Some(own), Some(base)) if !series.reference && base > 0.0 => Some(own / base),
                    _ => None,
                };
                Cell { series: *series, figure, ratio, place: scale.place(instructions.unwrap_or(0.0)) }
            });
            Group { row, what, cells: cells.collect(), curve: routes::target(row).is_some() }
        });
        Figures { groups: groups.collect(), ticks: scale.ticks(), series }
    }

    /// The row at the top of the page.
    pub fn headline(&self) -> Option<&Group<'d>> {
        self.groups.iter().find(|group| group.row == HEADLINE).or_else(|| self.groups.first())
    }

    /// The rows that bars show.
    pub fn bars(&self) -> impl Iterator<Item = &Group<'d>> {
        self.groups.iter().filter(|group| !group.curve)
    }

    /// What could not be measured.
    pub fn errors(&self) -> Vec<&Cell<'d>> {
        let cells = self.groups.iter().flat_map(|group| &group.cells);
        cells.filter(|cell| cell.error().is_some()).collect()
    }

    /// The subject that others are compared with.
    pub fn reference(&self) -> Option<&'d str> {
        self.series.iter().find(|series| series.reference).map(|series| series.info.title.as_str())
    }

    /// Whether there is anything to compare.
    pub fn compares(&self) -> bool {
        self.series.len() > 1
    }

    /// Whether lines and pages were counted.
    pub fn any_touched(&self) -> bool {
        let mut cells = self.groups.iter().flat_map(|group| &group.cells);
        cells.any(|cell| cell.figure.is_some_and(|figure| figure.footprint.is_some()))
    }

    /// Whether figures of another time stand among these.
    pub fn any_recorded(&self) -> bool {
        self.groups.iter().flat_map(|group| &group.cells).any(Cell::recorded)
    }
}

impl Group<'_> {
    /// The chart's content in a sentence, for those who do not see it.
    pub fn description(&self) -> String {
        let parts: Vec<String> = self
            .cells
            .iter()
            .map(|cell| match cell.known() {
                Some(_) => format!("{} {}", cell.series.info.title, cell.text()),
                None => format!("{} {}", cell.series.info.title, cell.missing()),
            })
            .collect();
        format!("Instructions per operation: {}.", parts.join(", "))
    }
}

impl Cell<'_> {
    /// The figure, if there is one.
    pub fn known(&self) -> Option<f64> {
        self.figure?.instructions
    }

    /// The figure as text.
    pub fn text(&self) -> String {
        self.known().map_or_else(|| "–".to_owned(), number::count)
    }

    /// Why there is none, in two words.
    pub fn missing(&self) -> &'static str {
        if self.error().is_some() { "not measured" } else { "not available" }
    }

    /// Why there is none.
    pub fn error(&self) -> Option<String> {
        let text = self.figure?.error.as_deref()?;
        let mut shown: String = text.chars().take(LONGEST_ERROR).collect();
        if shown.len() < text.len() {
            shown.push('…');
        }
        Some(shown)
    }

    /// The row's name, where the document has the row.
    pub fn row(&self) -> &str {
        self.figure.map_or("", |figure| &figure.row)
    }

    /// How far its bar reaches.
    pub fn reach(&self) -> String {
        number::length(self.place)
    }

    /// The ratio to the reference.
    pub fn ratio(&self) -> String {
        self.ratio.map(number::ratio).unwrap_or_default()
    }

    /// Whether it was not measured in this run.
    pub fn recorded(&self) -> bool {
        self.figure.is_some_and(|figure| figure.recorded)
    }

    /// Visits outside the guest.
    pub fn exits(&self) -> String {
        self.figure.and_then(|figure| figure.exits).map_or_else(|| "–".to_owned(), number::count)
    }

    /// What the guest's own counter says.
    pub fn counter(&self) -> String {
        self.figure.and_then(|figure| figure.counter).map_or_else(|| "–".to_owned(), number::count)
    }

    /// Lines of code, lines of data, and pages that were touched.
    pub fn touched(&self) -> [String; 3] {
        let footprint = self.figure.and_then(|figure| figure.footprint);
        footprint
            .map_or_else(|| [(); 3].map(|()| "–".to_owned()), |it| it.counts().map(|(_, n)| number::count(n)))
    }

    /// How many operations were measured.
    pub fn iterations(&self) -> String {
        let iterations = self.figure.and_then(|figure| figure.iterations);
        iterations.map_or_else(|| "–".to_owned(), |iterations| number::count(iterations as f64))
    }
}
