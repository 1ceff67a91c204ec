// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an SGI costs by the vCPU that it is for: a line for each subject and size of VM.

use super::number;
use super::scale::{Linear, Tick};
use super::series::Series;
use crate::bench::document::Document;

/// Labels that are closer than this, in per cent, do not fit side by side on a narrow screen.
const CLOSE: f64 = 7.0;

/// The target and the number of vCPUs of a row `sgi-to-N-of-M`.
pub fn target(row: &str) -> Option<(u32, u32)> {
    let (target, vcpus) = row.strip_prefix("sgi-to-")?.split_once("-of-")?;
    Some((target.parse().ok()?, vcpus.parse().ok()?))
}

/// The curve.
pub struct Curve<'d> {
    /// Its lines.
    pub lines: Vec<Line<'d>>,
    /// The targets along the bottom, and whether each is close to the one before.
    pub targets: Vec<(Tick, bool)>,
    /// The grid, from the bottom.
    pub ticks: Vec<Tick>,
}

/// The figures of a subject with one size of VM.
pub struct Line<'d> {
    /// The subject.
    pub series: Series<'d>,
    /// The number of vCPUs.
    pub vcpus: u32,
    /// Whether it is drawn dashed, to tell sizes apart without colour.
    pub dashed: bool,
    /// Its points by target.
    pub points: Vec<Point>,
}

/// A figure.
pub struct Point {
    /// The target.
    pub target: u32,
    /// Where it is, from the left.
    pub x: String,
    /// Where it is, from the top.
    pub y: String,
    /// The figure.
    pub text: String,
}

impl<'d> Curve<'d> {
    /// Takes the document apart; `None` if it has no such rows.
    pub fn new(document: &'d Document, series: &[Series<'d>]) -> Option<Self> {
        let mut known: Vec<(Series<'d>, u32, u32, f64)> = Vec::new();
        for figure in &document.rows {
            let series = series.iter().find(|series| series.info.subject == figure.subject);
            if let (Some(series), Some((target, vcpus)), Some(count)) =
                (series, target(&figure.row), figure.instructions)
            {
                known.push((*series, vcpus, target, count));
            }
        }
        let farthest = known.iter().map(|(_, _, target, _)| *target).max()?;
        let across = |target: u32| f64::from(target) * 100.0 / f64::from(farthest.max(1));
        let up = Linear::to(known.iter().map(|(.., count)| *count));
        let mut sizes: Vec<u32> = known.iter().map(|(_, vcpus, ..)| *vcpus).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let largest = *sizes.last()?;
        let mut lines = Vec::new();
        for series in series {
            for size in &sizes {
                let mut own: Vec<(u32, f64)> = known
                    .iter()
                    .filter(|(other, vcpus, ..)| other.info == series.info && vcpus == size)
                    .map(|(_, _, target, count)| (*target, *count))
                    .collect();
                own.sort_unstable_by_key(|(target, _)| *target);
                let points = own.into_iter().map(|(target, count)| Point {
                    target,
                    x: number::length(across(target)),
                    y: number::length(100.0 - up.place(count)),
                    text: number::count(count),
                });
                let points: Vec<Point> = points.collect();
                if !points.is_empty() {
                    lines.push(Line { series: *series, vcpus: *size, dashed: *size != largest, points });
                }
            }
        }
        let mut targets: Vec<u32> = known.iter().map(|(_, _, target, _)| *target).collect();
        targets.sort_unstable();
        targets.dedup();
        let mut before = None;
        let targets = targets.into_iter().map(|target| {
            let close = before.replace(target).is_some_and(|before| across(target) - across(before) < CLOSE);
            (Tick { at: number::length(across(target)), label: target.to_string() }, close)
        });
        let mut ticks = up.ticks();
        let places: Vec<String> = ticks.iter().rev().map(|tick| tick.at.clone()).collect();
        // The axis counts from the bottom, SVG from the top; equal steps make that the places in reverse.
        for (tick, at) in ticks.iter_mut().zip(places) {
            tick.at = at;
        }
        Some(Curve { lines, targets: targets.collect(), ticks })
    }

    /// The chart's content in a sentence, for those who do not see it.
    pub fn description(&self) -> String {
        let lines: Vec<String> = self
            .lines
            .iter()
            .map(|line| {
                let points: Vec<String> = line
                    .points
                    .iter()
                    .map(|point| format!("{} to vCPU {}", point.text, point.target))
                    .collect();
                format!("{} with {} vCPUs: {}", line.series.info.title, line.vcpus, points.join(", "))
            })
            .collect();
        format!("Instructions of an SGI by its target. {}.", lines.join("; "))
    }
}

impl Line<'_> {
    /// The points in pairs: the ends of the line's pieces.
    pub fn pieces(&self) -> impl Iterator<Item = (&Point, &Point)> {
        self.points.iter().zip(self.points.iter().skip(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_names_of_rows() {
        assert_eq!(target("sgi-to-31-of-32"), Some((31, 32)));
        assert_eq!(target("sgi-to-x-of-32"), None);
        assert_eq!(target("self-sgi"), None);
    }
}
