// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Estimated cycles, which are a model's, and how far the model is off.

use super::number;
use super::series::Series;
use crate::bench::document::{Document, Residual, WeightsUsed};

/// The estimates.
pub struct Estimates<'d> {
    /// The model.
    pub model: &'d WeightsUsed,
    /// The rows, with one figure for each subject.
    pub lines: Vec<(&'d str, Vec<String>)>,
    /// Where cycles are known.
    pub residuals: Vec<Known<'d>>,
    /// The mean of the residuals' sizes.
    pub mean: String,
}

/// Known cycles beside the model's.
pub struct Known<'d> {
    /// What was measured.
    pub row: &'d str,
    /// The known cycles.
    pub measured: String,
    /// The model's.
    pub model: String,
    /// The difference in per cent of the known.
    pub off: String,
    /// Where a bar from the axis's middle begins.
    pub from: String,
    /// How long it is.
    pub length: String,
}

impl<'d> Estimates<'d> {
    /// Takes the document apart; `None` if no model was asked for.
    pub fn new(document: &'d Document, series: &[Series<'d>]) -> Option<Self> {
        let model = document.weights.as_ref()?;
        let lines = document.row_names().into_iter().map(|(row, _)| {
            let cells = series.iter().map(|series| {
                let figure = document.figure(&series.info.subject, row);
                let cycles = figure.and_then(|figure| figure.cycles.as_ref());
                cycles.map_or_else(|| "–".to_owned(), |cycles| number::count(cycles.total.round()))
            });
            (row, cells.collect())
        });
        let widest = model.residuals.iter().map(|residual| off(residual).abs()).fold(1.0, f64::max);
        let sum: f64 = model.residuals.iter().map(|residual| off(residual).abs()).sum();
        let mean = number::count((sum / model.residuals.len().max(1) as f64).round());
        let residuals = model.residuals.iter().map(|residual| known(residual, widest)).collect();
        Some(Estimates { model, lines: lines.collect(), residuals, mean })
    }
}

fn off(residual: &Residual) -> f64 {
    if residual.measured > 0.0 { (residual.model / residual.measured - 1.0) * 100.0 } else { 0.0 }
}

fn known(residual: &Residual, widest: f64) -> Known<'_> {
    let half = off(residual) / widest * 50.0;
    Known {
        row: &residual.row,
        measured: number::count(residual.measured),
        model: number::count(residual.model.round()),
        off: number::percent(off(residual).round()),
        from: number::length(50.0 + half.min(0.0)),
        length: number::length(half.abs()),
    }
}
