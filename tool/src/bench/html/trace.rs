// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What ran in one visit: as a strip, folded by function, and instruction by instruction.

use std::fmt::Write;

use super::number;
use super::scale::Linear;
use super::series::Series;
use crate::bench::document::{Document, Trace};

/// A visit with more functions than this is shown closed.
const OPEN: usize = 8;
/// The width of a letter in per cent of a strip, on a wide screen.
const LETTER: f64 = 0.7;

/// How much of the traces is shown.
#[derive(Clone, Copy, Debug)]
pub struct Detail {
    /// The visits of so many rows.
    pub rows: usize,
    /// So many instructions of each.
    pub steps: usize,
}

/// What ran in the visits that were traced.
pub struct Traces<'d> {
    /// The rows that are shown.
    pub rows: Vec<Visits<'d>>,
    /// How many rows are left out.
    pub left_out: usize,
}

/// All visits of one row.
pub struct Visits<'d> {
    /// The row.
    pub row: &'d str,
    /// One for each subject.
    pub visits: Vec<Visit<'d>>,
}

/// A visit.
pub struct Visit<'d> {
    /// The subject's heading.
    pub title: &'d str,
    /// The number of its colour.
    pub colour: usize,
    /// How many instructions ran.
    pub instructions: String,
    /// What ran after what.
    pub runs: Vec<Run<'d>>,
    /// Where the strip ends.
    pub end: String,
    /// The functions.
    pub functions: Vec<Function<'d>>,
    /// Every instruction, if the document has them and they fit.
    pub listing: Option<String>,
    /// How many instructions the listing leaves out.
    pub left_out: usize,
}

/// Instructions of one function in a row.
pub struct Run<'d> {
    /// The function.
    pub function: &'d str,
    /// How many.
    pub instructions: u64,
    /// Where it begins.
    pub from: String,
    /// How long it is.
    pub length: String,
    /// Whether its name fits into it.
    pub named: bool,
}

/// A function.
pub struct Function<'d> {
    /// Its name.
    pub name: &'d str,
    /// Its instructions.
    pub instructions: u64,
    /// Its part of the visit.
    pub part: String,
}

impl Visit<'_> {
    /// Whether it is short enough to be shown open.
    pub fn open(&self) -> bool {
        self.functions.len() <= OPEN
    }

    /// The strip's content in a sentence.
    pub fn description(&self) -> String {
        let functions: Vec<String> = self
            .functions
            .iter()
            .map(|function| format!("{} {}", function.name, function.instructions))
            .collect();
        format!("{} instructions: {}.", self.instructions, functions.join(", "))
    }
}

/// What stands for a function without a name.
fn shown(function: &str) -> &str {
    if function.is_empty() { "(no symbol)" } else { function }
}

/// Takes the document's traces apart.
pub fn traces<'d>(document: &'d Document, series: &[Series<'d>], detail: Detail) -> Traces<'d> {
    let mut rows: Vec<&str> = Vec::new();
    for trace in &document.traces {
        if !rows.contains(&trace.row.as_str()) {
            rows.push(&trace.row);
        }
    }
    let left_out = rows.len().saturating_sub(detail.rows);
    let visits = |row: &'d str| {
        let traces: Vec<&Trace> = document.traces.iter().filter(|trace| trace.row == row).collect();
        let scale = Linear::to(traces.iter().map(|trace| total(trace) as f64));
        let visits = traces.into_iter().map(|trace| visit(trace, series, scale, detail.steps));
        Visits { row, visits: visits.collect() }
    };
    Traces { rows: rows.into_iter().take(detail.rows).map(visits).collect(), left_out }
}

fn total(trace: &Trace) -> u64 {
    trace.folded.iter().map(|folded| folded.instructions).sum()
}

fn visit<'d>(trace: &'d Trace, series: &[Series<'d>], scale: Linear, limit: usize) -> Visit<'d> {
    let total = total(trace);
    let mut done = 0;
    let runs = in_order(trace).into_iter().map(|(function, instructions)| {
        let (from, to) = (scale.place(done as f64), scale.place((done + instructions) as f64));
        done += instructions;
        let named = (function.chars().count() as f64 + 1.5) * LETTER < to - from;
        Run { function, instructions, from: number::length(from), length: number::length(to - from), named }
    });
    let runs = runs.collect();
    let functions = trace.folded.iter().map(|folded| Function {
        name: shown(&folded.function),
        instructions: folded.instructions,
        part: number::length(folded.instructions as f64 * 100.0 / total.max(1) as f64),
    });
    Visit {
        title: Series::title(series, &trace.subject),
        colour: Series::colour(series, &trace.subject),
        instructions: number::count(total as f64),
        runs,
        end: number::length(scale.place(total as f64)),
        functions: functions.collect(),
        listing: listing(trace, limit),
        left_out: trace.steps.len().saturating_sub(limit),
    }
}

/// The functions in the order in which they ran; folded, if the instructions are not there.
fn in_order(trace: &Trace) -> Vec<(&str, u64)> {
    if trace.steps.is_empty() {
        return trace.folded.iter().map(|folded| (shown(&folded.function), folded.instructions)).collect();
    }
    let mut runs: Vec<(&str, u64)> = Vec::new();
    for step in &trace.steps {
        match runs.last_mut() {
            Some((function, count)) if *function == shown(&step.function) => *count += 1,
            _ => runs.push((shown(&step.function), 1)),
        }
    }
    runs
}

/// The instructions as lines, under the name of their function.
fn listing(trace: &Trace, limit: usize) -> Option<String> {
    if trace.steps.is_empty() || limit == 0 {
        return None;
    }
    let mut text = String::new();
    let mut function = None;
    for step in trace.steps.iter().take(limit) {
        if function != Some(&step.function) {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{}:", shown(&step.function));
            function = Some(&step.function);
        }
        let _ = writeln!(text, "  {}  {}", step.pc.trim_start_matches("0x"), step.text);
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::fold::{Folded, NamedStep};

    fn step(function: &str) -> NamedStep {
        NamedStep { pc: "0x40".into(), function: function.into(), text: "nop".into() }
    }

    #[test]
    fn functions_are_runs_in_the_order_of_execution() {
        let folded = |function: &str, instructions| Folded { function: function.into(), instructions };
        let mut trace = Trace { folded: vec![folded("a", 3), folded("b", 1)], ..Trace::default() };
        assert_eq!(in_order(&trace), [("a", 3), ("b", 1)]);
        trace.steps = vec![step("a"), step("a"), step("b"), step("a")];
        assert_eq!(in_order(&trace), [("a", 2), ("b", 1), ("a", 1)]);
        assert_eq!(listing(&trace, 3).unwrap(), "a:\n  40  nop\n  40  nop\nb:\n  40  nop\n");
        assert_eq!(listing(&trace, 0), None);
    }
}
