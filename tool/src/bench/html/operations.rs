// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the hardware has to do in one operation: stacked by kind, and every class and register in tables.

use std::collections::{BTreeMap, BTreeSet};

use super::number;
use super::scale::{Linear, Tick};
use super::series::Series;
use crate::bench::document::{Document, Figure};
use crate::bench::operations::{KINDS, hardware};
use crate::bench::routes;

/// The stacked bars of all rows.
pub struct Operations<'d> {
    /// The rows.
    pub groups: Vec<Group<'d>>,
    /// The kinds that occur, for the legend: colour and title.
    pub legend: Vec<(usize, &'static str)>,
    /// The grid.
    pub ticks: Vec<Tick>,
}

/// A row.
pub struct Group<'d> {
    /// Its name.
    pub row: &'d str,
    /// What one operation is.
    pub what: &'d str,
    /// One bar for each subject.
    pub bars: Vec<Bar<'d>>,
    /// Every class.
    pub classes: Vec<Line>,
    /// Every register and device.
    pub registers: Vec<Line>,
}

/// A subject's bar.
pub struct Bar<'d> {
    /// The subject.
    pub series: Series<'d>,
    /// Its segments, from the left.
    pub segments: Vec<Segment>,
    /// Where it ends.
    pub end: String,
    /// The sum; nothing where nothing was counted.
    pub total: Option<String>,
}

/// A part of a bar.
pub struct Segment {
    /// The number of its colour.
    pub colour: usize,
    /// Where it begins.
    pub from: String,
    /// How long it is.
    pub length: String,
    /// What it is, and how many.
    pub title: String,
}

/// A line of a table: a name and one figure for each subject.
pub struct Line {
    /// The class or register.
    pub name: String,
    /// The figures.
    pub counts: Vec<String>,
}

impl<'d> Operations<'d> {
    /// Takes the document apart; `None` if no operations were counted.
    pub fn new(document: &'d Document, series: &[Series<'d>]) -> Option<Self> {
        let counted = |figure: &&Figure| !figure.classes.is_empty();
        let shown = document.rows.iter().filter(|figure| routes::target(&figure.row).is_none());
        let totals: Vec<f64> = shown.filter(counted).map(hardware).collect();
        if totals.is_empty() {
            return None;
        }
        let scale = Linear::to(totals);
        let rows = document.row_names().into_iter().filter(|(row, _)| routes::target(row).is_none());
        let groups = rows.map(|(row, what)| {
            let figures: Vec<Option<&Figure>> = series
                .iter()
                .map(|series| document.figure(&series.info.subject, row).filter(counted))
                .collect();
            let bars = series.iter().zip(&figures).map(|(series, figure)| bar(*series, *figure, scale));
            Group {
                row,
                what,
                bars: bars.collect(),
                classes: lines(&figures, |figure| vec![&figure.classes]),
                registers: lines(&figures, |figure| vec![&figure.registers, &figure.devices]),
            }
        });
        let groups: Vec<Group> = groups.collect();
        let used: BTreeSet<usize> = groups
            .iter()
            .flat_map(|group| &group.bars)
            .flat_map(|bar| &bar.segments)
            .map(|segment| segment.colour)
            .collect();
        let legend = used.into_iter().filter_map(|index| Some((index, KINDS.get(index)?.title))).collect();
        Some(Operations { groups, legend, ticks: scale.ticks() })
    }
}

impl Group<'_> {
    /// The chart's content in a sentence, for those who do not see it.
    pub fn description(&self) -> String {
        let parts: Vec<String> = self
            .bars
            .iter()
            .map(|bar| match &bar.total {
                Some(total) => {
                    let segments: Vec<&str> =
                        bar.segments.iter().map(|segment| segment.title.as_str()).collect();
                    format!("{} {total} ({})", bar.series.info.title, segments.join(", "))
                }
                None => format!("{} not counted", bar.series.info.title),
            })
            .collect();
        format!("Hardware operations: {}.", parts.join("; "))
    }
}

fn bar<'d>(series: Series<'d>, figure: Option<&Figure>, scale: Linear) -> Bar<'d> {
    let mut segments = Vec::new();
    let mut sum = 0.0;
    for (colour, kind) in KINDS.iter().enumerate() {
        let count = figure.map_or(0.0, |figure| kind.count(figure));
        if count > 0.0 {
            let (from, to) = (scale.place(sum), scale.place(sum + count));
            segments.push(Segment {
                colour,
                from: number::length(from),
                length: number::length(to - from),
                title: format!("{}: {}", kind.title, number::count(count)),
            });
            sum += count;
        }
    }
    let total = figure.map(|_| number::count(sum));
    Bar { series, segments, end: number::length(scale.place(sum)), total }
}

type Counts<'f> = Vec<&'f BTreeMap<String, f64>>;

fn lines(figures: &[Option<&Figure>], maps: impl for<'f> Fn(&'f Figure) -> Counts<'f>) -> Vec<Line> {
    let all = figures.iter().flatten().flat_map(|figure| maps(figure)).flat_map(BTreeMap::keys);
    let names: BTreeSet<&String> = all.collect();
    let line = |name: &String| {
        let counts = figures.iter().map(|figure| match figure {
            None => "–".to_owned(),
            Some(figure) => number::count(maps(figure).iter().filter_map(|map| map.get(name)).sum()),
        });
        Line { name: name.clone(), counts: counts.collect() }
    };
    names.into_iter().map(line).collect()
}
